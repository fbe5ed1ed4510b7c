"""Programs with hostile names: the same program, in which every name and every text is another."""

import json
import random
from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]

TEXTS = (
    "*/", "**//", "/*", "//\n", "\n#include </etc/passwd>\n", "\\\n", "\\", "??/", "??/\n", '"', "'",
    "%n%s%1000000d",     "*/ __attribute__((constructor)) static void run(void) {} /*",
    "\r\n#error x\n", "\0", "ä\u202e¥", "\ud7ff",
    "int", "while", "_Pragma", "asm", "typeof", "linux", "errno", "NULL", "LIMBS", "struct phv", "valid",
    "none_", "exited_", "end_", "common_", "path",
    "rt_lookup", "sw", "p", "a", "i", "r0", "v0", "key", "main", "p4_",
    "p4_p4_a", "1", "", " ", "(const uint8_t[]){", "limbs_add(", "x" * 5000,
)  # fmt: skip
"""What C, its preprocessor, printf, or the runtime could take for something else."""

_SEPARATORS = '*/\\"?\n#%'
"""Their characters count names apart, and all of them are the same in an identifier."""

_WORDS = frozenset(
    {
        "op", "type", "match_type", "algo", "match_kind", "__meta__", "mask", "rate_count", "target_type",
        "header_id", "file",
    }
)  # fmt: skip
"""Keys of the JSON whose values are words of its format."""

_KNOWN = frozenset(
    """standard_metadata $valid$ ingress egress parser deparser __HIT__ __MISS__ NoError
    PacketTooShort NoMatch StackOutOfBounds HeaderTooShort ParserTimeout ParserInvalidArgument""".split()
)


def renamed(text: str | bytes, chance: random.Random) -> bytes:
    """A program with names that `chance` makes, each of which is put in place of one of its own."""
    document = json.loads(text)
    names = {name: _hostile(number, chance) for number, name in enumerate(_names(document))}
    return json.dumps(_replaced(document, names, chance)).encode()


def _hostile(number: int, chance: random.Random) -> str:
    counted = "".join(_SEPARATORS[int(digit)] for digit in f"{number:o}")
    return f"{chance.choice(TEXTS)}\x01{counted}\x01{chance.choice(TEXTS)}"


def _names(document: Json) -> list[str]:
    """The names that a program gives, in order, without those that v1model gives."""
    types = document["header_types"]
    standard = next(
        each["header_type"] for each in document["headers"] if each["name"] == "standard_metadata"
    )
    known = _KNOWN | {
        field[0] for each in types if each["name"] == standard for field in each["fields"]
    }
    found = dict.fromkeys(field[0] for each in types for field in each["fields"])
    found |= dict.fromkeys(
        member[0] for each in document.get("header_union_types", []) for member in each["headers"]
    )
    found |= dict.fromkeys(name for name, _ in document.get("errors", []))
    found |= dict.fromkeys(_given(document))
    return [name for name in found if name not in known]


def _given(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("name"), str):
            yield node["name"]
        node = list(node.values())
    if isinstance(node, list):
        for each in node:
            yield from _given(each)


def _replaced(node: Any, names: dict[str, str], chance: random.Random) -> Any:
    if isinstance(node, list):
        return [_replaced(each, names, chance) for each in node]
    if not isinstance(node, dict):
        return names.get(node, node) if isinstance(node, str) else node
    if node.get("type") == "string":  # what log_msg prints
        return {**node, "value": node["value"] + chance.choice(TEXTS).replace("{", "")}
    result = {}
    for key, value in node.items():
        if key == "source_info":
            texts = {
                each: chance.choice(TEXTS) + chance.choice(TEXTS)
                for each in ("filename", "source_fragment")
            }
            result[key] = {**value, **texts} if value else value
        elif key in _WORDS:
            result[key] = value
        elif key == "next_tables":
            result[key] = {names.get(each, each): names.get(to, to) for each, to in value.items()}
        else:
            result[key] = _replaced(value, names, chance)
    return result
