"""The data plane: P4 source, and p4c's output for it.

`shared/` holds the parts that both programs include, `v1model/` the program for BMv2 and the
embedded switch, and `tna/` the program for Tofino. `compiled/` holds p4c's output, with a manifest
of the sources' digests and the compiler's version.
"""
