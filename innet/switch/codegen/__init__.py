"""The generator of C from the intermediate form.

The generated file reads top down like the P4 program: headers and registers (`data`), actions
(`steps`), parser and deparser (`parsing`), checksums (`checksums`), pipelines (`controls`), and
`program_process` (`packet`), which takes one packet through all of them. These modules share `text`
and `scope`. `names` keeps the program's own text out of the C.
"""

from innet.switch import ir
from innet.switch.codegen import (
    checksums,
    controls,
    data,
    externs,
    packet,
    replication,
    spreading,
)
from innet.switch.codegen.headers import Headers
from innet.switch.codegen.parsing import Parsing
from innet.switch.codegen.registers import Registers
from innet.switch.codegen.scope import Scope
from innet.switch.codegen.steps import Steps
from innet.switch.constants import NO_ACTION
from innet.switch.layout import key_bytes, value_set_bytes


def generate(program: ir.Program, *, tracing: bool = False) -> str:
    """Return the program as the text of a C file that includes ``runtime.h``.

    With `tracing`, the program logs what it does with every packet. Raises UnsupportedProgram.
    """
    scope = Scope(program, tracing=tracing)
    program = scope.program
    banks = data.banks(program.registers)
    steps = Steps(scope, Registers(scope, banks))
    parsing = Parsing(scope, steps, Headers(scope, steps))
    externs.Externs(scope, steps)

    data.packet_struct(scope)
    data.state_struct(scope, banks)
    externs.calculations(scope)
    steps.actions()
    parsing.parser()
    checksums.verification(scope)
    checksums.update(scope)
    parsing.deparser()
    controls.pipeline(scope, "ingress", program.ingress)
    controls.pipeline(scope, "egress", program.egress)
    replication.functions(scope)
    packet.depart(scope)
    packet.process(scope)
    key = spreading.key(scope, parsing)
    spreading.fetch(scope, banks)
    spans = [controls.spans(table) for table in program.tables]
    externs.layout(scope, [*spans, *(() for _ in program.value_sets)])
    _description(scope, banks, parsing.max_header_bytes(), is_keyed=key is not None)
    return "\n".join([*_includes(scope), *scope.text.lines]) + "\n"


def _includes(scope: Scope) -> list[str]:
    limbs = max(2, -(-scope.expressions.arithmetic.limb_bits // 64))
    return ['#include "switch.h"', f"#define LIMBS {limbs}", '#include "limbs.h"', ""]


def _description(
    scope: Scope, banks: list[data.Bank], header_bytes: int, *, is_keyed: bool
) -> None:
    tables, counters = scope.program.tables, scope.program.counters
    defaults = [
        NO_ACTION if table.default_action is None else table.default_action for table in tables
    ]
    # The value sets follow the tables. To the runtime they are tables without actions.
    keys = [key_bytes(each) for each in tables]
    keys += [value_set_bytes(each) for each in scope.program.value_sets]
    defaults += [NO_ACTION] * len(scope.program.value_sets)
    sizes = [0 if counter.table else counter.size for counter in counters]
    scope.emit(
        f"static const uint32_t key_bytes[] = {{{_list(keys)}}};",
        f"static const uint32_t default_action[] = {{{_list(defaults)}}};",
        f"static const size_t counter_size[] = {{{_list(sizes)}}};",
    )
    with scope.block("static const struct cells registers[] =", "};"):
        scope.emit(*(data.cells(each, banks) for each in scope.program.registers), "{0, 0, 0, 0},")
    scope.emit(
        "const struct program program = {",
        f"    {len(keys)}, key_bytes, default_action, {len(sizes)}, counter_size, registers,",
        "    sizeof(struct state),",
        f"    .phv_bytes = {'sizeof(struct phv)' if replication.waits(scope) else '0'},",
        f"    .header_bytes = {header_bytes},",
        f"    .learn_lists = {len(scope.program.learn_lists)},",
        f"    .is_keyed = {str(is_keyed).lower()},",
        "};",
    )


def _list(numbers: list[int]) -> str:
    return ", ".join(f"{number}u" for number in [*numbers, 0])
