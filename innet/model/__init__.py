"""Models of training time: formulas, a fit, and a simulator of the slot protocol."""
