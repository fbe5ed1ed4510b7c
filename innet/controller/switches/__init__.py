"""The control of switches over P4Runtime.

`supervisor` runs one thread per switch. It uses `aggregation` (a switch that runs the aggregation
program), which uses `targets` (the kinds of switch) and `entries` (the program's table entries).
Below them `reconcile`, `p4runtime` and `names` work for any program.
"""
