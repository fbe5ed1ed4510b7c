"""Published measurements of scaling, to draw beside the models. Each has its source.

Efficiencies are from 0 to 1, sizes in bytes, and times in seconds.
"""

from dataclasses import dataclass

SC17 = "You, Buluç and Demmel, Scaling Deep Learning on GPU and Knights Landing clusters, SC17, Table 4"
COMHPC16 = (
    "Graham et al., Scalable Hierarchical Aggregation Protocol (SHArP), COMHPC 2016, abstract, "
    "doi:10.1109/COMHPC.2016.006"
)
EXAMPI20 = (
    "Ramesh et al., Scalable MPI Collectives using SHARP: Large Scale Performance Evaluation on the "
    "TACC Frontera System, ExaMPI 2020, abstract, doi:10.1109/ExaMPI52011.2020.00007"
)
ISC20 = (
    "Graham et al., SHARP Streaming-Aggregation Hardware Design and Evaluation, ISC 2020, abstract, "
    "doi:10.1007/978-3-030-50743-5_3"
)


@dataclass(frozen=True)
class WeakScaling:
    """The weak scaling of a neural network: bytes of its model, seconds of one node's step.

    `efficiency` is by nodes. A node has 68 cores, so 64 nodes are the paper's 4,352 cores.
    """

    name: str
    size: float
    step: float
    efficiency: dict[int, float]
    source: str


TABLE_4 = (
    WeakScaling(
        "GoogleNet", 4 * 6.8e6, 1533 / 300,
        {1: 1.0, 2: 0.964, 4: 0.953, 8: 0.934, 16: 0.940, 32: 0.923, 64: 0.916},
        SC17,
    ),
    WeakScaling(
        "VGG-19", 575e6, 1318 / 80,
        {1: 1.0, 2: 0.915, 4: 0.890, 8: 0.865, 16: 0.807, 32: 0.785, 64: 0.802},
        SC17,
    ),
)  # fmt: skip
"""Table 4 has the times only. The sizes of the models come from the models' own papers."""


@dataclass(frozen=True)
class Offloaded:
    """A published `speedup`: the time of an all-reduce on `nodes` hosts, over that in switches."""

    nodes: int
    size: float | None
    """Bytes of the vector; None: the best case of several sizes, without the size in the abstract."""
    speedup: float
    source: str

    @property
    def vector(self) -> str:
        """Return the size of the vector as text."""
        return "best case" if self.size is None else f"{self.size:,.0f} bytes"


SHARP = (
    Offloaded(128, 8, 6.01 / 2.83, COMHPC16),
    Offloaded(128, 4096, 46.93 / 14.48, COMHPC16),
    Offloaded(7861, None, 5.1, EXAMPI20),
)
SHARP_BANDWIDTH = 0.95
"""The share of the network's bandwidth that streaming aggregation reaches (ISC20)."""
