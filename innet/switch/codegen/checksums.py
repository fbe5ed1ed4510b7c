"""Checksums that are verified after the parser, or updated before the deparser."""

from innet.switch import ir
from innet.switch.codegen.hashes import SIGNATURE, function
from innet.switch.codegen.scope import Scope
from innet.switch.codegen.text import c_type


def verification(scope: Scope) -> None:
    """Write a function that sets `checksum_error` if a checksum is wrong."""
    with scope.block(
        f"static void verify_checksums({SIGNATURE.replace('const struct', 'struct')})"
    ):
        scope.emit("(void)sw; (void)p; (void)rest; (void)rest_bytes;")
        for checksum in scope.program.checksums:
            if checksum.verify:
                target, error = scope.lvalue(checksum.target), scope.standard("checksum_error")
                with scope.block(_condition(scope, checksum)):
                    scope.emit(f"if ({_sum(checksum)} != {target}) {error} = 1;")
    scope.emit("")


def update(scope: Scope) -> None:
    """Write a function that updates the checksums."""
    with scope.block(
        f"static void update_checksums({SIGNATURE.replace('const struct', 'struct')})"
    ):
        scope.emit("(void)sw; (void)p; (void)rest; (void)rest_bytes;")
        for checksum in scope.program.checksums:
            if checksum.update:
                bits = scope.expressions.field_type(checksum.target).bits
                mask = f" & {hex((1 << bits) - 1)}u" if bits < 64 else ""
                text = f"({c_type(bits)})({_sum(checksum)}{mask})"
                with scope.block(_condition(scope, checksum)):
                    scope.emit(f"{scope.lvalue(checksum.target)} = {text};")
    scope.emit("")


def _condition(scope: Scope, checksum: ir.Checksum) -> str:
    condition = scope.expressions.truth(checksum.condition)
    header = scope.program.header_of(checksum.target)
    if not header.metadata:
        condition = f"{scope.valid(header.name)} && {condition}"
    return f"if ({condition})"


def _sum(checksum: ir.Checksum) -> str:
    return f"{function(checksum.calculation)}(sw, p, rest, rest_bytes)"
