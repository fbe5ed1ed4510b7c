"""What float32 becomes on its way through the switch: one quantizer a file, all with one interface.

`interface` says what a quantizer does; `block_scale` (int32), `narrow` (int16, int8) and `threshold`
(Strom's) are quantizers. `packing` puts narrow integers side by side into the switch's lanes, `rounding`
rounds to nearest or at random, `residuals` are what error feedback keeps. `choice` reads names such as
``int8+stochastic+feedback``. docs/quantization.md compares them.
"""
