"""What training costs in time: formulas, a fit, and a simulator of the slot protocol."""
