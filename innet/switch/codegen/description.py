"""The generated program's description of itself, which the runtime reads: ``struct program``."""

from collections.abc import Iterable

from innet.switch.codegen import controls, data, replication
from innet.switch.codegen.scope import Scope
from innet.switch.constants import NO_ACTION
from innet.switch.layout import key_bytes, value_set_bytes


def write(
    scope: Scope, banks: list[data.Bank], header_bytes: int, *, is_keyed: bool, defers: bool
) -> None:
    """Write the description. `header_bytes` are the most bytes that the deparser can write.

    To the runtime, the parser's value sets are further tables, behind the program's. They have no
    actions.
    """
    program = scope.program
    value_sets = program.value_sets
    keys = [*map(key_bytes, program.tables), *map(value_set_bytes, value_sets)]
    defaults = [
        NO_ACTION if table.default_action is None else table.default_action
        for table in program.tables
    ]
    defaults += [NO_ACTION] * len(value_sets)
    spans = [*map(controls.spans, program.tables), *(() for _ in value_sets)]
    counters = [0 if counter.table else counter.size for counter in program.counters]
    for number, table_spans in enumerate(spans):
        if table_spans:
            text = ", ".join(f"{{{first}, {size}}}" for first, size in table_spans)
            scope.emit(f"static const struct span spans_{number}[] = {{{text}}};")
    names = [f"spans_{number}" if each else "NULL" for number, each in enumerate(spans)]
    scope.emit(
        f"static const uint32_t key_bytes[] = {{{_numbers(keys)}}};",
        f"static const uint32_t default_action[] = {{{_numbers(defaults)}}};",
        f"static const uint32_t span_count[] = {{{_numbers(map(len, spans))}}};",
        f"static const struct span *const spans[] = {{{', '.join([*names, 'NULL'])}}};",
        f"static const size_t counter_size[] = {{{_numbers(counters)}}};",
        f"static const size_t meter_size[] = {{{_numbers(each.size for each in program.meters)}}};",
    )
    with scope.block("static const struct cells registers[] =", "};"):
        scope.emit(*(data.cells(each, banks) for each in program.registers), "{0, 0, 0, 0},")
    with scope.block("const struct program program =", "};"):
        scope.emit(
            f".tables = {len(keys)},",
            ".key_bytes = key_bytes,",
            ".default_action = default_action,",
            ".span_count = span_count,",
            ".spans = spans,",
            f".counters = {len(counters)},",
            ".counter_size = counter_size,",
            f".meters = {len(program.meters)},",
            ".meter_size = meter_size,",
            ".registers = registers,",
            ".state_bytes = sizeof(struct state),",
            f".phv_bytes = {'sizeof(struct phv)' if replication.waits(scope) else '0'},",
            f".header_bytes = {header_bytes},",
            f".learn_lists = {len(program.learn_lists)},",
            f".is_keyed = {str(is_keyed).lower()},",
            f".defers = {str(defers).lower()},",
        )


def _numbers(numbers: Iterable[int]) -> str:
    """Return the initializer of an array. It is not empty, because C has no empty arrays."""
    return ", ".join(f"{number}u" for number in [*numbers, 0])
