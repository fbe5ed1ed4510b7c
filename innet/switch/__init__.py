"""An embedded P4 switch. It runs v1model programs that p4c has compiled for BMv2, as machine code.

`bmv2json` reads p4c's output into the intermediate form of `ir`. `codegen` writes C from that form,
and `build` compiles the C together with `runtime/`. `engine` runs the result, and `ports` opens the
sockets that frames arrive at and leave from. `p4runtime` serves the protocol that programs the
switch. `metrics` serves Prometheus, `mininet` is the Mininet switch class, and `cli` is the command
``innet-switch``. `serving` is what this command shares with the rack server's.

The package knows nothing of the purpose of a program: every behaviour comes from the program
itself. It never imports `innet.p4` or `innet.wire`, which import-linter enforces.
"""

from innet.switch import sources

__all__ = ["sources"]
