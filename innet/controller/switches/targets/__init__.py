"""The kinds of switch that run the aggregation program, and all differences between them.

`choice` finds a kind by its name. `interface` is the protocol of a kind, which `bmv2` and `tofino`
implement. `packing` turns a Tofino's program into the form its P4Runtime servers take.
"""
