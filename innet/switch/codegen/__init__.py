"""The generator of C from the intermediate form.

The generated file reads top down like the P4 program: headers and registers (`data`), hashes
(`hashes`), actions (`steps`), parser and deparser (`parsing`), checksums (`checksums`), pipelines
(`controls`), copies of packets (`replication`), and `program_process` (`packet`), which takes one
packet through all of them. At the end stand the functions of a packet's key (`spreading`), and the
program's description for the runtime (`description`).

These modules share `scope`, which holds the program and its names in C, and `text`. Four of them
render primitives: `steps` itself, `headers`, `parsing` and `externs`. `registers` and `fields` render
accesses to cells and fields, and `tracing` the trace of a packet. `names` keeps the program's own text
out of the C.

The analyses in front of them write no C. `temporaries` finds metadata that need not travel with the
packet, `loops` finds steps that are repeated, `partition` finds the packets that may run on
different cores, and `deferral` the checksums that need not be computed. They use `effects` (what a
primitive changes) and `references` (what it mentions).
"""

from innet.switch import ir
from innet.switch.codegen import (
    checksums,
    controls,
    data,
    deferral,
    description,
    externs,
    hashes,
    packet,
    replication,
    spreading,
)
from innet.switch.codegen.headers import Headers
from innet.switch.codegen.names import renamed
from innet.switch.codegen.parsing import Parsing
from innet.switch.codegen.partition import partition
from innet.switch.codegen.registers import Registers
from innet.switch.codegen.scope import Scope
from innet.switch.codegen.steps import Steps


def generate(program: ir.Program, *, tracing: bool = False) -> str:
    """Return the program as the text of a C file that includes ``runtime.h``.

    With `tracing`, the program logs what it does with every packet. Raises UnsupportedProgram.
    """
    scope = Scope(program, tracing=tracing)
    # A trace shows one packet after the other, so a program that traces runs on one core.
    key = None if tracing else renamed(partition(program).key, scope.names)
    program = scope.program  # with the names of C
    banks = data.banks(program.registers)
    # The steps of actions and parser states are primitives. `steps` renders them, and the others tell it
    # how to render theirs.
    steps = Steps(scope, Registers(scope, banks))
    parsing = Parsing(scope, steps, Headers(scope, steps))
    externs.define(scope, steps)

    data.packet_struct(scope)
    data.state_struct(scope, banks)
    hashes.calculations(scope)
    steps.actions()
    parsing.parser()
    checksums.verification(scope)
    checksums.update(scope)
    parsing.deparser()
    parsing.checksum_place()
    controls.pipeline(scope, "ingress", program.ingress)
    controls.pipeline(scope, "egress", program.egress)
    replication.functions(scope)
    packet.depart(scope)
    packet.process(scope)
    spreading.key_function(scope, parsing, key)
    spreading.fetch_function(scope, banks)
    description.write(
        scope,
        banks,
        parsing.max_header_bytes(),
        is_keyed=key is not None,
        defers=deferral.defers(program),
    )
    return "\n".join([*_includes(scope), *scope.text.lines]) + "\n"


def _includes(scope: Scope) -> list[str]:
    limbs = max(2, -(-scope.expressions.arithmetic.limb_bits // 64))
    return ['#include "switch.h"', f"#define LIMBS {limbs}", '#include "limbs.h"', ""]
