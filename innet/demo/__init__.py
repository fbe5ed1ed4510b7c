"""``innet demo``: one training on one machine, through a P4 switch and over Gloo for comparison.

`rack` starts the switch and the controller. Each worker process runs `training`. `comparison` runs
both trainings and prints the table.
"""
