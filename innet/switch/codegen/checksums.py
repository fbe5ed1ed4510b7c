"""Checksums that are verified behind the parser, or updated in front of the deparser."""

from collections.abc import Iterator
from contextlib import contextmanager

from innet.switch import ir
from innet.switch.codegen.scope import Scope


def verification(scope: Scope) -> None:
    """A function that sets `checksum_error` if a checksum does not hold."""
    with scope.block("static void verify_checksums(struct phv *p)"):
        scope.emit("(void)p;")
        for checksum in scope.program.checksums:
            if checksum.verify:
                with _sum(scope, checksum):
                    target, error = scope.place(checksum.target), scope.standard("checksum_error")
                    scope.emit(f"if (sum != {target}) {error} = 1;")
    scope.emit("")


def update(scope: Scope) -> None:
    """A function that writes new checksums."""
    with scope.block("static void update_checksums(struct phv *p)"):
        scope.emit("(void)p;")
        for checksum in scope.program.checksums:
            if checksum.update:
                with _sum(scope, checksum):
                    scope.emit(f"{scope.place(checksum.target)} = sum;")
    scope.emit("")


@contextmanager
def _sum(scope: Scope, checksum: ir.Checksum) -> Iterator[None]:
    total = sum(bits for _, bits in checksum.inputs)
    present = scope.valid(checksum.target.header)
    with scope.block(f"if ({present} && {scope.expressions.truth(checksum.condition)})"):
        scope.emit(f"u8 bytes[{total // 8 + 1}] = {{0}};")
        offset = 0
        for value, bits in checksum.inputs:
            scope.emit(f"rt_put_bits(bytes, {offset}, {bits}, {scope.expressions.wide(value)});")
            offset += bits
        scope.emit(f"const u16 sum = rt_csum16(bytes, {(total + 7) // 8});")
        yield
