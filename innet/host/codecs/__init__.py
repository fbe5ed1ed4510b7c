"""Gradients as fewer bytes, and back, for whoever sends them without the switch; pure functions.

`interface` says what a codec does. Decoded values are summed as floats, at every hop of a ring for
instance: unlike a quantizer's (:mod:`innet.host.quantizers`) a codec's codes cannot be added by a switch.
docs/quantization.md compares them.
"""
