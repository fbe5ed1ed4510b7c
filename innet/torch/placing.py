"""Results, written into tensors of any strides."""

import torch

from innet.errors import UnsupportedTensor


def put(tensor: torch.Tensor, values: torch.Tensor) -> None:
    """Copy values into a tensor of any strides.

    Raises UnsupportedTensor if elements of the tensor share memory and would need different values.
    The collective is over then, so that no other rank waits.
    """
    if tensor.is_neg():  # there, PyTorch's copy_ forgets the sign when it converts
        values = values.to(tensor.dtype)
    # Bypass autograd's book-keeping, as all backends do for their results.
    place, values = tensor.data, values.reshape(tensor.shape)
    if not may_overlap(place):
        place.copy_(values)
        return
    first = [
        slice(0, 1) if size > 1 and not step else slice(None)
        for size, step in zip(place.shape, place.stride(), strict=True)
    ]
    place[tuple(first)].copy_(values[tuple(first)])
    if not torch.equal(_bits(place), _bits(values.to(place.dtype))):
        raise UnsupportedTensor(
            "a collective cannot write its result to a tensor whose elements share memory, such as an "
            "expanded one: give it tensor.contiguous()"
        )


def may_overlap(tensor: torch.Tensor) -> bool:
    """Return whether elements of a tensor may share memory, as far as its strides tell."""
    if tensor.is_contiguous():
        return False
    extent = 0
    for step, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1:
            if step <= extent:
                return True
            extent += (size - 1) * step
    return False


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bytes of a tensor's elements, in which a NaN is equal to itself."""
    whole = tensor.resolve_conj().resolve_neg().contiguous()
    return whole.as_strided((whole.numel(),), (1,)).view(torch.uint8)
