"""From the intermediate form to C.

The generated file reads top down like the P4 program: headers and registers (`data`), actions
(`steps`), parser and deparser (`parsing`), checksums (`checksums`), pipelines (`controls`), and
`program_process` (`packet`), which walks one packet through all of them. `text` and `scope` are what
these share.
"""

from innet.switch import ir
from innet.switch.codegen import checksums, controls, data, packet
from innet.switch.codegen.controls import key_bytes, key_sizes
from innet.switch.codegen.parsing import Parsing
from innet.switch.codegen.scope import Scope
from innet.switch.codegen.steps import Steps

__all__ = ["generate", "key_bytes", "key_sizes"]

_NO_ACTION = 0xFFFFFFFF


def generate(program: ir.Program) -> str:
    """The program as the text of a C file that includes ``runtime.h``."""
    scope = Scope(program)
    banks = data.banks(program.registers)
    steps = Steps(scope, banks)
    parsing = Parsing(scope, steps)

    scope.emit('#include "runtime.h"', "")
    data.packet_struct(scope)
    data.state_struct(scope, banks)
    steps.actions()
    parsing.parser()
    checksums.verification(scope)
    checksums.update(scope)
    parsing.deparser()
    controls.pipeline(scope, "ingress", program.ingress)
    controls.pipeline(scope, "egress", program.egress)
    packet.depart(scope, parsing.most_header_bytes())
    packet.process(scope)
    _description(scope)
    return "\n".join(scope.text.lines) + "\n"


def _description(scope: Scope) -> None:
    tables, counters = scope.program.tables, scope.program.counters
    defaults = [
        _NO_ACTION if table.default_action is None else table.default_action for table in tables
    ]
    sizes = [0 if counter.table else counter.size for counter in counters]
    scope.emit(
        f"static const u32 key_bytes[] = {{{_list([key_bytes(each) for each in tables])}}};",
        f"static const u32 default_action[] = {{{_list(defaults)}}};",
        f"static const u32 counter_size[] = {{{_list(sizes)}}};",
        "const struct program program = {",
        f"    {len(tables)}, key_bytes, default_action, {len(sizes)}, counter_size,",
        "    sizeof(struct state),",
        "};",
    )


def _list(numbers: list[int]) -> str:
    return ", ".join(f"{number}u" for number in [*numbers, 0])
