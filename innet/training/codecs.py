"""Vectors as messages: :mod:`innet.host.codecs` for what a ring or a parameter server transmits.

T and Q are the two light codecs of Pipe-SGD (Li et al., 2018, section 3.2), truncation and quantization:
in a ring one sits in every transmit-and-reduce step, so it has to be cheap.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from innet.errors import UsageError
from innet.host.codecs import interface
from innet.host.codecs.max_scaled import MaxScaled
from innet.host.codecs.truncation import Truncation

_SCALE = 4


class _Plain:
    """See :class:`interface.Codec`: float32 as it is."""

    def encode(self, values: interface.Floats) -> interface.Encoded:
        """The values."""
        return interface.Encoded(values, np.float32(1), values.size)

    def decode(self, encoded: interface.Encoded) -> interface.Floats:
        """A copy."""
        return np.array(encoded.codes, np.float32)


@dataclass(frozen=True)
class Codec:
    """A codec and the layout of its messages: the scale as float32 if there is one, then the codes.

    Vectors are float32 (n,) on the CPU, messages uint8 (:meth:`size`,).
    """

    kind: interface.Codec
    code: type[np.generic]
    """Of one element."""
    scaled: bool = False

    def size(self, elements: int) -> int:
        """Bytes of a message with so many elements."""
        return self._offset + np.dtype(self.code).itemsize * elements

    def encode(self, vector: Tensor) -> Tensor:
        """The message for a vector, of which nothing is shared with it."""
        encoded = self.kind.encode(vector.numpy())
        message = np.empty(self.size(encoded.elements), np.uint8)
        message[: self._offset].view(np.float32)[:] = encoded.scale
        message[self._offset :] = encoded.codes.view(np.uint8)
        return torch.from_numpy(message)

    def decode(self, message: Tensor) -> Tensor:
        """The vector in a message: a new one, of which nothing is shared with the message."""
        given = message.numpy()
        codes = given[self._offset :].view(self.code)
        scale = given[: self._offset].view(np.float32)[0] if self.scaled else np.float32(1)
        return torch.from_numpy(self.kind.decode(interface.Encoded(codes, scale, codes.size)))

    @property
    def _offset(self) -> int:
        return _SCALE if self.scaled else 0


class Mirror:
    """One end of a way on which vectors travel as codes of how they differ from the ones before.

    Both ends begin with `known`, and add up what the codes come to. So what a codec has taken off one
    difference is in the next, and the other end is never further off than a codec is with one of them.
    """

    def __init__(self, known: Tensor, codec: Codec) -> None:
        self._known, self._codec = known.clone(), codec

    def encode(self, vector: Tensor) -> Tensor:
        """The message for the next vector, (n,)."""
        message = self._codec.encode(vector - self._known)
        self.decode(message)
        return message

    def decode(self, message: Tensor) -> Tensor:
        """What the other end had, to within the codec's error."""
        self._known += self._codec.decode(message)
        return self._known.clone()


PLAIN = Codec(_Plain(), np.float32)
_CODECS = {
    "plain": PLAIN,
    "T": Codec(Truncation(), np.uint16),
    "Q": Codec(MaxScaled(), np.int8, scaled=True),
}


def mirrored(codec: Codec, known: Tensor) -> Codec | Mirror:
    """A :class:`Mirror`; or the codec itself, if it takes nothing off."""
    return codec if codec is PLAIN else Mirror(known, codec)


def codec(name: str) -> Codec:
    """The codec ``plain``, ``T`` or ``Q``. Raises UsageError."""
    if name not in _CODECS:
        raise UsageError(f"codec {name!r}: there are {', '.join(_CODECS)}")
    return _CODECS[name]
