"""Seconds that training takes: Li et al., "Pipe-SGD", NeurIPS 2018, equations (2) to (7).

All functions are pure, and all times are in seconds. `update` is l_up, `forward` is l_for,
`backward` is l_back, and `compute` is l_comp, l_for plus l_back. `communicate` is l_comm, one
all-reduce.
"""

from innet.errors import UsageError


def synchronous(iterations: int, update: float, compute: float, communicate: float) -> float:
    """Return equation (2), D-Sync: T (l_up + l_comp + l_comm)."""
    return iterations * (update + compute + communicate)


def pipelined_ideal(
    iterations: int, depth: int, update: float, compute: float, communicate: float
) -> float:
    """Return equation (3), Pipe-SGD with unlimited resources: T / K (l_up + l_comp + l_comm)."""
    if depth < 1:
        raise UsageError(f"K={depth}: the depth of the pipeline has to be at least 1")
    return iterations / depth * (update + compute + communicate)


def pipelined(iterations: int, update: float, compute: float, communicate: float) -> float:
    """Return equation (4), Pipe-SGD with limited resources, K >= 2: T max(l_up + l_comp, l_comm).

    With the l_comm of :func:`innet.model.all_reduce.ring` it is equation (5).
    """
    return iterations * max(update + compute, communicate)


def pipelined_segments(
    iterations: int,
    update: float,
    forward: float,
    backward_first: float,
    communicate: float,
) -> float:
    """Return equation (6), pipelined gradient communication: T max(l_up + l_for + l_b, l_comm).

    `backward_first` is l_b, the backward pass of the first segment. l_comm is that of L segments.
    """
    return iterations * max(update + forward + backward_first, communicate)


def scaling_efficiency(update: float, compute: float, communicate: float) -> float:
    """Return equation (7), of Pipe-SGD: (l_up + l_comp) / max(l_up + l_comp, l_comm), from 0 to 1."""
    return (update + compute) / max(update + compute, communicate)


def elastic_overlapped(iterations: int, update: float, compute: float, communicate: float) -> float:
    """Return the time of Sync EASGD3 (You et al., section 6.1.3): T (max(l_comp, l_comm) + l_up).

    The exchange of the weights overlaps the forward and backward pass. The update needs both.
    """
    return iterations * (max(compute, communicate) + update)
