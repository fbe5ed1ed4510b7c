"""The keys of a job at a worker, and the check that a caller's arrays fit them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from innet.errors import UsageError

Arrays = Sequence[np.ndarray]


@dataclass(frozen=True)
class Keys:
    """The names and the sizes, in floats, of a job's keys, in order."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]

    def numbers(self, wanted: Sequence[int] | None) -> Sequence[int]:
        """Return the numbers of the wanted keys. Without `wanted`, they are those of all keys."""
        return range(len(self.sizes)) if wanted is None else wanted

    def check(
        self,
        what: str,
        arrays: Arrays,
        wanted: Sequence[int] | None = None,
        *,
        writeable: bool = False,
    ) -> None:
        """Raise UsageError unless there is a fitting array for each wanted key.

        Messages call the arrays `what`.
        """
        count = len(self.sizes)
        if wanted is not None and (
            len(set(wanted)) != len(wanted) or not all(0 <= key < count for key in wanted)
        ):
            raise UsageError(f"keys {list(wanted)}: give numbers from 0 to {count - 1}, each once")
        numbers = self.numbers(wanted)
        if len(arrays) != len(numbers):
            raise UsageError(
                f"{what}: {len(arrays)} arrays for {len(numbers)} keys: give one for each"
            )
        for array, key in zip(arrays, numbers, strict=True):
            fits = (
                isinstance(array, np.ndarray)
                and array.dtype == np.float32
                and array.size == self.sizes[key]
                and array.flags.c_contiguous
                and (array.flags.writeable or not writeable)
            )
            if not fits:
                raise UsageError(
                    f"{what}: key {self.names[key]} needs a C-contiguous{' writeable' * writeable} "
                    f"float32 array of {self.sizes[key]} elements, not {_describe(array)}"
                )


def _describe(array: object) -> str:
    if not isinstance(array, np.ndarray):
        return type(array).__name__
    layout = "" if array.flags.c_contiguous else ", not contiguous"
    return f"{array.dtype} of {array.size}{layout}{'' if array.flags.writeable else ', read-only'}"
