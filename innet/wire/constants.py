"""The constants of the packet format for C (:mod:`innet.native.constants`)."""

from itertools import accumulate

from innet.native.constants import Constants
from innet.wire.frames import TYPE_OF_SERVICE
from innet.wire.layout import HEADER, HEADER_BYTES, VERSION, Ecn, Flag, Kind, Operation

_OFFSETS = accumulate((field.bits for field in HEADER), initial=0)

CONSTANTS: Constants = {
    **{f"AT_{field.name.upper()}": at // 8 for field, at in zip(HEADER, _OFFSETS, strict=False)},
    "HEADER_BYTES": HEADER_BYTES,
    "VERSION": VERSION,
    "KIND": Kind,
    "OPERATION": Operation,
    "FLAG": Flag,
    "ECN": Ecn,
    "TYPE_OF_SERVICE": TYPE_OF_SERVICE,
}
"""``AT_JOB`` and so on are the positions of the header's fields, in bytes. Two fields may share one."""
