"""Quantizers: formats of float32 on its way through the switch, all with one interface.

`interface` defines a quantizer. There are three: `block_scale` (int32), `narrow` (int16, int8) and
`threshold` (Strom's). `packing` puts narrow integers side by side into the switch's lanes.
`rounding` rounds to nearest or at random. `residuals` hold the errors for error feedback. `spec`
reads names such as ``int8+stochastic+feedback``. docs/quantization.md compares the quantizers.
"""
