"""Codecs by name."""

from innet.errors import UsageError
from innet.host.codecs.dynamic_tree import DynamicTree
from innet.host.codecs.interface import Codec
from innet.host.codecs.max_scaled import MaxScaled
from innet.host.codecs.threshold import Threshold
from innet.host.codecs.truncation import Truncation
from innet.host.quantizers.spec import Choice

CODECS: dict[str, type[Codec]] = {"truncation": Truncation, "max8": MaxScaled, "tree8": DynamicTree}


def codec(text: str) -> Codec:
    """Return the codec ``truncation``, ``max8``, ``tree8`` or ``strom:TAU``. Raises UsageError."""
    if text in CODECS:
        return CODECS[text]()
    if text.startswith("strom"):
        return Threshold(Choice.read(text).tau)
    raise UsageError(f"codec {text!r}: it has to be one of {', '.join(CODECS)} or strom:TAU")
