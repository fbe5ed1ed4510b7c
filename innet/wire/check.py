"""The check: 32 bits in every innet packet that tell whether it is what its sender sent.

A multilinear hash (Lemire and Kaser, "Strongly universal string hashing is fast", The Computer
Journal 57(11), 2014): the upper half of W(0) + W(1) word(1) + W(2) word(2) + … modulo 2⁶⁴, where the
words are the frame's IPv4 source address, its UDP source port, the header in front of the check,
and the lanes. Whatever difference there is between two packets, the chance that it goes unseen is 2⁻³².
No flip of one or two bits does.

The weights are fixed and public: the check finds damage, and keeps nobody from forging a packet.
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
_WORDS_BEFORE = HEADER_BYTES // 4 - 1  # the header's, in front of the check, which is its last

Checks = npt.NDArray[np.uint32]
Words = int | npt.NDArray[np.unsignedinteger]


@cache
def weight(k: int) -> int:
    """W(k): the k-th output of splitmix64 (Steele, Lea and Flood, OOPSLA 2014), 64 bits."""
    mixed = (_SEED + k * 0x9E3779B97F4A7C15) % _MODULUS
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 % _MODULUS
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB % _MODULUS
    return mixed ^ mixed >> 31


def checks(records: Records, source_ip: Words, source_port: Words) -> Checks:
    """What `check` should be in each of these packets, (packets,) uint32.

    `source_ip` (as a number) and `source_port` are those of the frames that carry the packets: one
    for all of them, or one for each. `records` are of any encapsulation and number of lanes.
    """
    start = records.dtype.fields["version"][1] if records.dtype.fields else 0
    words = (records.dtype.itemsize - start) // 4
    total = word_sums(records, weights(words)) + bases(source_ip, source_port)
    return (total >> np.uint64(32)).astype(np.uint32)


def seal(records: Records, source_ip: Words, source_port: Words) -> None:
    """Fill in the `check` of every packet, in place; do it last. Arguments as for :func:`checks`."""
    records["check"] = checks(records, source_ip, source_port)


def intact(records: Records, source_ip: Words, source_port: Words) -> npt.NDArray[np.bool_]:
    """Which packets' `check` fits, (packets,). Arguments as for :func:`checks`."""
    return np.asarray(records["check"] == checks(records, source_ip, source_port))


def bases(source_ip: Words, source_port: Words) -> npt.NDArray[np.uint64]:
    """What senders' addresses add to the sums of their packets' weighted words, (1,) or (packets,)."""
    ips, ports = (np.atleast_1d(np.asarray(each, np.uint64)) for each in (source_ip, source_port))
    sums: npt.NDArray[np.uint64] = np.uint64(weight(1)) * ips + np.uint64(weight(2)) * ports
    return sums + np.uint64(weight(0))


@cache
def weights(words: int) -> npt.NDArray[np.uint64]:
    """The weights of so many words from the header's first on; the check itself weighs nothing."""
    numbers = [weight(k) for k in range(3, words + 2)]
    before, behind = numbers[:_WORDS_BEFORE], numbers[_WORDS_BEFORE:]
    return np.array([*before, 0, *behind], np.uint64)
