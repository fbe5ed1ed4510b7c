"""Codecs by name."""

from innet.errors import UsageError
from innet.host.quantizers.spec import QuantizerSpec
from innet.training.codecs.dynamic_tree import DynamicTree
from innet.training.codecs.interface import Codec
from innet.training.codecs.max_scaled import MaxScaled
from innet.training.codecs.threshold import Threshold
from innet.training.codecs.truncation import Truncation

CODECS: dict[str, type[Codec]] = {"truncation": Truncation, "max8": MaxScaled, "tree8": DynamicTree}


def codec(text: str) -> Codec:
    """Return the codec ``truncation``, ``max8``, ``tree8`` or ``strom:TAU``. Raises UsageError."""
    if text in CODECS:
        return CODECS[text]()
    if text.startswith("strom"):
        return Threshold(QuantizerSpec.read(text).tau)
    raise UsageError(f"codec {text!r}: it has to be one of {', '.join(CODECS)} or strom:TAU")
