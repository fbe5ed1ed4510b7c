"""Tables of what the models predict, as ``innet model`` prints them."""

from typing import TYPE_CHECKING

from innet.model.all_reduce import SlotParameters
from innet.model.links import LinkModel
from innet.model.predict import Prediction, Workload, max_workers_hidden
from innet.rpc.words import counted
from innet.terminal.console import console
from innet.terminal.tables import folding_table

if TYPE_CHECKING:
    from innet.model.scaling import Curve

_out = console(soft_wrap=True)
_COLUMNS = (
    "workers", "fastest", "over", "s an iteration", "s communicating", "hidden",
    "efficiency", "times D-Sync", "times a ring",
)  # fmt: skip
_SCALING_COLUMNS = (
    "workers", "levels", "s communicating", "switches", "ring", "overlapped", "published",
)  # fmt: skip


def print_predictions(
    found: dict[int, list[Prediction]],
    workload: Workload,
    link: LinkModel,
    slots: SlotParameters,
    rack: int,
) -> None:
    """Print the fastest algorithm and transport for each number of workers."""
    table = folding_table(*_COLUMNS)
    for count, each in found.items():
        best = each[0]
        d_sync = min(one.seconds for one in each if one.algorithm == "d-sync")
        ring = min(one.seconds for one in each if one.transport == "ring")
        table.add_row(
            str(count), best.algorithm, best.transport, f"{best.seconds:.4g}",
            f"{best.communicate:.4g}", "yes" if best.hidden else f"{best.exposed:.4g} s exposed",
            f"{best.efficiency:.1%}", f"{d_sync / best.seconds:.2f}", f"{ring / best.seconds:.2f}",
        )  # fmt: skip
    _out.print(table)
    for transport in dict.fromkeys(one.transport for each in found.values() for one in each):
        last = max_workers_hidden(transport, list(found), workload, link, slots, rack)
        where = f"up to {counted(last, 'worker')}" if last else "nowhere in this range"
        _out.print(f"Pipe-SGD hides communication over {transport} {where}.")


def print_scaling(curves: "list[Curve]") -> None:
    """Print the efficiencies of weak scaling, beside those that others have published."""
    from innet.model.published import SHARP
    from innet.model.scaling import EDR, offloaded

    for curve in curves:
        _out.print(f"{curve.name}, compute times vary by {curve.stragglers.variation:.1%}")
        table = folding_table(*_SCALING_COLUMNS)
        for one in curve.points:
            efficiencies = (one.efficiency(kind) for kind in ("switches", "ring", "overlapped"))
            published = curve.published.efficiency.get(one.workers) if curve.published else None
            table.add_row(
                str(one.workers), str(one.levels), f"{one.communicate:.4g}",
                *(f"{each:.1%}" for each in efficiencies),
                f"{published:.1%}" if published else "",
            )  # fmt: skip
        _out.print(table)
        if curve.published:
            _out.print(f"Published: {curve.published.source}")
    for point in SHARP:
        modelled = offloaded(point.nodes, point.size or 8, EDR)
        _out.print(
            f"SHARP, {point.nodes:,} nodes, {point.vector}: {point.speedup:.2f} times as fast as hosts; "
            f"innet's model says {modelled:.2f}. {point.source}"
        )
