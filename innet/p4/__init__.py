"""The data plane: P4 source, and what p4c made of it.

`shared/` holds what every target's program includes, `v1model/` the program for BMv2 and the embedded
switch, `compiled/` what p4c made of it, with a manifest that says which p4c.
"""
