"""The embedded P4 switch: any v1model program that p4c compiles for BMv2, as a native packet loop.

`bmv2json` reads p4c's output into the intermediate form of `ir`, `codegen` writes C from it, `build`
compiles that beside `runtime/`, `engine` runs it, `ports` are the frames' way in and out. In front
stands `p4runtime`, which programs it. `metrics` serves Prometheus, `mininet` is for Mininet, `cli` the
command ``innet-switch``.

It knows P4 and nothing else: what a program is for must come out of the program. Of innet it imports
`errors`, `sockets` and what all commands share, nothing else.
"""
