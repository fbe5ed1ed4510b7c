"""The check: 32 bits in every innet packet that show whether it has arrived as it was sent.

It is a multilinear hash (Lemire and Kaser, "Strongly universal string hashing is fast", The
Computer Journal 57(11), 2014), namely the upper half of W(0) + W(1) word(1) + W(2) word(2) + …
modulo 2⁶⁴. The words are the frame's IPv4 source address, its UDP source port, the header in front
of the check, and the lanes. The check detects every flip of one or two bits. Any other difference
between two packets goes undetected with a probability of 2⁻³².

The weights are fixed and public. The check detects damage, but does not prevent forgery.
``innet/p4/v1model/integrity.p4`` is the switch's copy of this module.
"""

from functools import cache

import numpy as np
import numpy.typing as npt

from innet.wire.batch import word_sums
from innet.wire.layout import HEADER_BYTES
from innet.wire.records import Records

_MODULUS = 1 << 64
_SEED = int.from_bytes(b"innet")
_WORDS_BEFORE = HEADER_BYTES // 4 - 1  # the header's words, without the check at its end

Checks = npt.NDArray[np.uint32]
Words = int | npt.NDArray[np.unsignedinteger]


@cache
def weight(k: int) -> int:
    """Return W(k): the k-th output of splitmix64 (Steele, Lea and Flood, OOPSLA 2014), 64 bits."""
    mixed = (_SEED + k * 0x9E3779B97F4A7C15) % _MODULUS
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 % _MODULUS
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB % _MODULUS
    return mixed ^ mixed >> 31


def checks(records: Records, source_ip: Words, source_port: Words) -> Checks:
    """Return the correct `check` of each of these packets, (packets,) uint32.

    `source_ip` (as a number) and `source_port` are those of the frames that carry the packets: one
    for all of them, or one for each. `records` may have any encapsulation and number of lanes.
    """
    start = records.dtype.fields["version"][1] if records.dtype.fields else 0
    words = (records.dtype.itemsize - start) // 4
    total = word_sums(records, weights(words)) + bases(source_ip, source_port)
    return (total >> np.uint64(32)).astype(np.uint32)


def seal(records: Records, source_ip: Words, source_port: Words) -> None:
    """Set the `check` of every packet in place. Do it last. Arguments: see :func:`checks`."""
    records["check"] = checks(records, source_ip, source_port)


def intact(records: Records, source_ip: Words, source_port: Words) -> npt.NDArray[np.bool_]:
    """Return whether each packet's `check` is correct, (packets,). Arguments: see :func:`checks`."""
    return np.asarray(records["check"] == checks(records, source_ip, source_port))


def bases(source_ip: Words, source_port: Words) -> npt.NDArray[np.uint64]:
    """Return the addresses' part of the sums of weighted words, (1,) or (packets,).

    It is W(0) + W(1) · source address + W(2) · source port.
    """
    ips, ports = (np.atleast_1d(np.asarray(each, np.uint64)) for each in (source_ip, source_port))
    sums: npt.NDArray[np.uint64] = np.uint64(weight(1)) * ips + np.uint64(weight(2)) * ports
    return sums + np.uint64(weight(0))


@cache
def weights(words: int) -> npt.NDArray[np.uint64]:
    """Return the weights of so many words, from the header's first on. The check's own weight is 0."""
    numbers = [weight(k) for k in range(3, words + 2)]
    before, behind = numbers[:_WORDS_BEFORE], numbers[_WORDS_BEFORE:]
    return np.array([*before, 0, *behind], np.uint64)
