"""The dissector for Wireshark and tshark, in Lua, generated from :mod:`innet.wire.layout`."""

import enum
from collections.abc import Iterable

from innet.wire.frames import ENCAPSULATION_BYTES
from innet.wire.layout import (
    HEADER,
    HEADER_BYTES,
    LANE_BYTES,
    UDP_PORT,
    WITH_LANES,
    Field,
    Flag,
    Kind,
    Operation,
)

_VALUES: dict[str, type[enum.IntEnum]] = {"kind": Kind, "operation": Operation}
_BYTE = 8
_IN_HEX = frozenset({"workers", "check", "flags"})

_TEMPLATE = """\
-- Wireshark's dissector of innet packets. `innet capture --dissector` has written it.
-- Put it into Wireshark's folder for personal Lua plugins (Help, About, Folders).

local innet = Proto("innet", "innet")
local field, flag, values = {}, {}, {}
%(values)s
%(fields)s
%(flags)s
field.lanes = ProtoField.bytes("innet.lanes", "lanes")
field.lane = ProtoField.int32("innet.lane", "lane", base.DEC)
innet.fields = { %(names)s, %(flag_names)s, field.lanes, field.lane }

local with_lanes = { %(with_lanes)s }

function innet.dissector(buffer, packet, tree)
    if buffer:len() < %(header_bytes)d then return 0 end
    packet.cols.protocol = "innet"
    local shown = tree:add(innet, buffer())
%(adds)s
    local kind = buffer(%(kind_at)d, 1):bitfield(0, 4)
    packet.cols.info = string.format("%%s job %%d term %%d slot %%d seq %%d",
        values.kind[kind] or "unknown kind", buffer(%(job_at)d, 2):uint(),
        buffer(%(term_at)d, 2):uint(), buffer(%(slot_at)d, 2):uint(), buffer(%(sequence_at)d, 4):uint())
    local size = buffer:len() - %(header_bytes)d
    size = size - size %% %(lane_bytes)d
    if with_lanes[kind] and size > 0 then
        local lanes = shown:add(field.lanes, buffer(%(header_bytes)d, size))
        for at = %(header_bytes)d, %(header_bytes)d + size - 1, %(lane_bytes)d do
            lanes:add(field.lane, buffer(at, %(lane_bytes)d))
        end
    end
    return buffer:len()
end

DissectorTable.get("udp.port"):add(%(port)d, innet)

-- A cable made of UDP carries whole Ethernet frames. Some are innet's, to or from its UDP port.
local cable = Proto("innet_cable", "innet cable")

function cable.dissector(buffer, packet, tree)
    Dissector.get("eth_withoutfcs"):call(buffer, packet, tree)
    return buffer:len()
end

local function is_cable(buffer, packet, tree)
    if buffer:len() < %(frame_bytes)d then return false end
    if buffer(12, 2):uint() ~= 0x0800 or buffer(14, 1):uint() ~= 0x45 then return false end
    if buffer(23, 1):uint() ~= 17 then return false end
    if buffer(34, 2):uint() ~= %(port)d and buffer(36, 2):uint() ~= %(port)d then return false end
    cable.dissector(buffer, packet, tree)
    return true
end

cable:register_heuristic("udp", is_cable)
"""


def dissector() -> str:
    """Return the dissector's source."""
    offsets = _offsets()
    return _TEMPLATE % {
        "values": _lines(f"values.{name} = {{ {_named(kind)} }}" for name, kind in _VALUES.items()),
        "fields": _lines(_declared(each, offsets[each.name] % _BYTE) for each in HEADER),
        "flags": _lines(
            f'flag.{each.name} = ProtoField.bool("innet.flags.{each.name.lower()}", '
            f'"{each.name}", 16, nil, {int(each)})'
            for each in Flag
            if each.name
        ),
        "names": ", ".join(f"field.{each.name}" for each in HEADER),
        "flag_names": ", ".join(f"flag.{each.name}" for each in Flag),
        "with_lanes": ", ".join(f"[{int(kind)}] = true" for kind in sorted(WITH_LANES)),
        "adds": _lines(
            line for each in HEADER for line in _added(each, offsets[each.name] // _BYTE)
        ),
        "header_bytes": HEADER_BYTES,
        "lane_bytes": LANE_BYTES,
        "frame_bytes": ENCAPSULATION_BYTES + HEADER_BYTES,
        "port": UDP_PORT,
        **{f"{name}_at": at // _BYTE for name, at in offsets.items()},
    }


def _offsets() -> dict[str, int]:
    """Return the bit at which each field begins."""
    offsets, at = {}, 0
    for each in HEADER:
        offsets[each.name] = at
        at += each.bits
    return offsets


def _declared(field: Field, bit: int) -> str:
    """Return the declaration of a field that begins at this bit of its first byte."""
    base = "base.HEX" if field.name in _IN_HEX else "base.DEC"
    bits, more = field.bits, ""
    if field.name in _VALUES:
        more = f", values.{field.name}"
    if bits < _BYTE:
        more = f"{more or ', nil'}, {(1 << bits) - 1 << _BYTE - bits - bit:#x}"
        bits = _BYTE
    return (
        f'field.{field.name} = ProtoField.uint{bits}("innet.{field.name}", "{field.name}", '
        f"{base}{more})"
    )


def _added(field: Field, at: int) -> list[str]:
    place = f"buffer({at}, {max(1, field.bits // _BYTE)})"
    added = f"shown:add(field.{field.name}, {place})"
    if field.name != "flags":
        return [f"    {added}"]
    flags = [f"    flags:add(flag.{each.name}, {place})" for each in Flag]
    return [f"    local flags = {added}", *flags]


def _named(kind: type[enum.IntEnum]) -> str:
    return ", ".join(f'[{int(each)}] = "{each.name}"' for each in kind)


def _lines(lines: Iterable[str]) -> str:
    return "\n".join(lines)
