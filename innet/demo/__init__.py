"""``innet demo``: a rack on one machine, trained through a P4 switch and, to compare, over Gloo.

`rack` starts the switch and the controller, `training` is what each worker process runs,
`comparison` runs both trainings and prints the table.
"""
