"""`innet shell`: p4runtime-shell on a switch that the controller knows."""
