"""The embedded P4 switch: any v1model program that p4c compiles for BMv2, as a native packet loop.

`bmv2json` reads p4c's output into the intermediate form of `ir`, `codegen` writes C from it, `build`
compiles that beside `runtime/`, `engine` runs it, `service` is the P4Runtime server in front, `ports`
the frames' way in and out, `cli` the command ``innet-switch``.

It knows P4 and nothing else: what a program is for must come out of the program. It imports nothing
of innet but `innet.errors`.
"""
