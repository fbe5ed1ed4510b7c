"""Codecs of messages: :mod:`innet.training.codecs` for rings and parameter servers.

T and Q are the two light codecs of Pipe-SGD (Li et al., 2018, section 3.2), truncation and
quantization. In a ring, every transmit-and-reduce step encodes and decodes, so a codec must be
cheap.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from innet.errors import UsageError
from innet.training.codecs import interface
from innet.training.codecs.max_scaled import MaxScaled
from innet.training.codecs.truncation import Truncation

_SCALE = 4


class _Plain:
    """Float32 without compression, as an :class:`interface.Codec`."""

    def encode(self, values: interface.Floats) -> interface.Encoded:
        """Return the values themselves as codes."""
        return interface.Encoded(values, np.float32(1), values.size)

    def decode(self, encoded: interface.Encoded) -> interface.Floats:
        """Return a copy of the values."""
        return np.array(encoded.codes, np.float32)


@dataclass(frozen=True)
class MessageCodec:
    """A codec and the layout of its messages: the scale as float32 if there is one, then the codes.

    Vectors are float32 (n,) on the CPU, messages uint8 (:meth:`size`,).
    """

    kind: interface.Codec
    code: type[np.generic]
    """The type of one element's code."""
    scaled: bool = False

    def size(self, elements: int) -> int:
        """Return the bytes of a message with `elements` elements."""
        return self._offset + np.dtype(self.code).itemsize * elements

    def encode(self, vector: Tensor) -> Tensor:
        """Return the message for a vector. It shares no memory with the vector."""
        encoded = self.kind.encode(vector.numpy())
        message = np.empty(self.size(encoded.elements), np.uint8)
        message[: self._offset].view(np.float32)[:] = encoded.scale
        message[self._offset :] = encoded.codes.view(np.uint8)
        return torch.from_numpy(message)

    def decode(self, message: Tensor) -> Tensor:
        """Return the vector in a message. It shares no memory with the message."""
        given = message.numpy()
        codes = given[self._offset :].view(self.code)
        scale = given[: self._offset].view(np.float32)[0] if self.scaled else np.float32(1)
        return torch.from_numpy(self.kind.decode(interface.Encoded(codes, scale, codes.size)))

    @property
    def _offset(self) -> int:
        return _SCALE if self.scaled else 0


class Mirror:
    """One end of a connection on which each vector travels as its difference to the previous one.

    Both ends begin with `known`, and add up the decoded differences. The codec's error in one
    difference is therefore part of the next one, and errors do not add up: the other end is never
    further off than the error of one difference.
    """

    def __init__(self, known: Tensor, codec: MessageCodec) -> None:
        self._known, self._codec = known.clone(), codec

    def encode(self, vector: Tensor) -> Tensor:
        """Return the message for the next vector, (n,)."""
        message = self._codec.encode(vector - self._known)
        self.decode(message)
        return message

    def decode(self, message: Tensor) -> Tensor:
        """Return the vector of the other end, to within the codec's error."""
        self._known += self._codec.decode(message)
        return self._known.clone()


PLAIN = MessageCodec(_Plain(), np.float32)
_CODECS = {
    "plain": PLAIN,
    "T": MessageCodec(Truncation(), np.uint16),
    "Q": MessageCodec(MaxScaled(), np.int8, scaled=True),
}


def mirrored(codec: MessageCodec, known: Tensor) -> MessageCodec | Mirror:
    """Return a :class:`Mirror`, or the codec itself if it is lossless."""
    return codec if codec is PLAIN else Mirror(known, codec)


def message_codec(name: str) -> MessageCodec:
    """Return the codec ``plain``, ``T`` or ``Q``. Raises UsageError."""
    if name not in _CODECS:
        raise UsageError(f"codec {name!r}: it has to be one of {', '.join(_CODECS)}")
    return _CODECS[name]
