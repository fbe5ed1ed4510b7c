"""The kinds of switch that run the aggregation program: what differs between them, and nothing else.

`choice` finds a kind by its name. `interface` says what the controller asks of one; `bmv2` and
`tofino` answer, and `packing` turns a Tofino's program into what its P4Runtime servers take.
"""
