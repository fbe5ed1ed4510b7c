"""Codecs: pure functions that make gradients smaller for transports without the switch.

`interface` defines a codec. Decoded values are added as floats, for example at every hop of a ring.
A switch cannot add codes, unlike the integers of a quantizer (:mod:`innet.host.quantizers`).
docs/quantization.md compares the codecs.
"""
