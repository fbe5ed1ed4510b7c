"""The intermediate form: a P4 program as p4c's BMv2 backend leaves it, in plain frozen records.

The records follow P4: `packet` (headers), `expressions`, `actions`, `parser`, `controls` (tables and
conditions) and `externs`. `program` puts them together. Names are those of the JSON. The reader that
builds this form has refused all programs that cannot run.
"""

from innet.switch.ir.actions import (
    Action,
    Format,
    Name,
    Primitive,
    SourceLocation,
)
from innet.switch.ir.controls import Conditional, ConstEntry, MatchKey, Pipeline, Table
from innet.switch.ir.expressions import (
    VALID,
    Bool,
    Const,
    Element,
    Expr,
    FieldRef,
    LastIndex,
    Lookahead,
    LoopConstants,
    Op,
    ParamRef,
    UnionValidity,
)
from innet.switch.ir.externs import (
    Calculation,
    Checksum,
    Counter,
    FieldList,
    Meter,
    Profile,
    Register,
)
from innet.switch.ir.packet import (
    STANDARD_FIELDS,
    STANDARD_METADATA,
    FieldType,
    Header,
    Stack,
    Union,
    UnionStack,
)
from innet.switch.ir.parser import ParserState, Transition, ValueSet
from innet.switch.ir.program import Program

__all__ = [
    "STANDARD_FIELDS",
    "STANDARD_METADATA",
    "VALID",
    "Action",
    "Bool",
    "Calculation",
    "Checksum",
    "Conditional",
    "Const",
    "ConstEntry",
    "Counter",
    "Element",
    "Expr",
    "FieldList",
    "FieldRef",
    "FieldType",
    "Format",
    "Header",
    "LastIndex",
    "Lookahead",
    "LoopConstants",
    "MatchKey",
    "Meter",
    "Name",
    "Op",
    "ParamRef",
    "ParserState",
    "Pipeline",
    "Primitive",
    "Profile",
    "Program",
    "Register",
    "SourceLocation",
    "Stack",
    "Table",
    "Transition",
    "Union",
    "UnionStack",
    "UnionValidity",
    "ValueSet",
]
