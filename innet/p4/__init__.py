"""The data plane: P4 source, and what p4c made of it.

`shared/` holds what every target's program includes, `v1model/` the program for BMv2 and the embedded
switch, `artifacts/` the compiled programs with a manifest that says which compiler made them.
"""
