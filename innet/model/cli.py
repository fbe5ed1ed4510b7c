"""The command ``innet model``."""

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from innet.errors import UsageError
from innet.model.all_reduce import SlotParameters
from innet.model.capacity import capacity
from innet.model.collectives import COLLECTIVES, link_bytes, over_gloo, through_switches
from innet.model.links import (
    MOST_WORKERS,
    LinkModel,
    parse_amount,
    parse_link,
    parse_range,
    parse_time,
)
from innet.model.options import (
    AsJson,
    Background,
    Lanes,
    Latency,
    LinkName,
    Oversubscription,
    RackCount,
    Size,
    SlotCount,
    SpineCount,
)
from innet.model.predict import Workload, predictions
from innet.model.tables import print_predictions, print_scaling
from innet.terminal.console import console
from innet.terminal.tables import folding_table

app = typer.Typer(
    no_args_is_help=True, help="Predict the time that training takes, by formula and simulation."
)
_out = console(soft_wrap=True)


@app.command()
def predict(
    compute: Annotated[
        str, typer.Option(help="Time of a worker's forward and backward pass, as in 0.1 or 100ms.")
    ],
    size: Size,
    workers: Annotated[
        str, typer.Option(help="The number of workers, or a range in which it doubles.")
    ] = "4..4096",
    link: LinkName = "10G",
    latency: Latency = "5us",
    update: Annotated[str, typer.Option(help="Time of a worker's update of the model.")] = "0",
    gamma: Annotated[
        str, typer.Option(help="Bytes per second that a node sums; 0: summing takes no time.")
    ] = "0",
    fitted: Annotated[
        Path | None, typer.Option(help="A link file that innet model fit has written.")
    ] = None,
    rack: Annotated[int, typer.Option(min=1, help="The number of workers at one switch.")] = 32,
    slots: SlotCount = 512,
    lanes: Lanes = 256,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the efficiency into this image file.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the fastest algorithm and transport, and the communication time that is not hidden."""
    if plot:
        from innet.model import plot as drawing

        drawing.check(plot)
    counts = parse_range(workers)
    workload = Workload(
        parse_amount(size, "--model-size"),
        parse_time(compute, "--compute"),
        parse_time(update, "--update"),
    )
    if not workload.compute + workload.update > 0:
        raise UsageError(
            "--compute 0: the models need an iteration that takes time; give more than 0"
        )
    chosen = _fitted(fitted) if fitted else _link(link, latency, gamma)
    window = SlotParameters(slots, lanes)
    found = {count: predictions(count, workload, chosen, window, rack) for count in counts}
    if as_json:
        rows = [asdict(one) for each in found.values() for one in each]
        sys.stdout.write(json.dumps(rows) + "\n")
    else:
        print_predictions(found, workload, chosen, window, rack)
    if plot:
        drawing.efficiencies(found, plot)


@app.command("fit")
def fit_link(
    measurements: Annotated[
        Path, typer.Argument(help="Measurements in JSON, as innet/model/fit.py describes.")
    ],
    output: Annotated[Path | None, typer.Option(help="Write the link to this file.")] = None,
) -> None:
    """Fit a link to measurements: its latency, and times to transfer, reduce and synchronize."""
    from innet.model.fit import fit, read

    found = fit(read(measurements))
    link = found.link
    rate = f"{8 / link.beta / 1e9:.4g} Gb/s" if link.beta else "no limit"
    _out.print(f"α  latency          {link.alpha:.4g} s")
    _out.print(f"β  transfer         {link.beta:.4g} s a byte, {rate}")
    _out.print(f"γ  reduction        {link.gamma:.4g} s a byte")
    _out.print(f"S  synchronization  {link.sync:.4g} s")
    _out.print(f"{found.measurements} measurements, off by {found.error:.1%} (root mean square)")
    if output:
        try:
            output.write_text(json.dumps(asdict(link)) + "\n")
        except OSError as problem:
            raise UsageError(f"cannot write to {output}: {problem.strerror}") from None


@app.command("capacity")
def show_capacity(
    link: LinkName = "10G",
    latency: Latency = "5us",
    racks: Annotated[
        int,
        typer.Option(
            min=1,
            help="The number of rack switches. If there are several, one switch is above them.",
        ),
    ] = 1,
    round_trip: Annotated[
        str,
        typer.Option(help="A measured round trip, as in 200us; 0: computed from the latency."),
    ] = "0",
    lanes: Lanes = 256,
    slots: Annotated[
        int, typer.Option(min=0, help="Slots of a job; 0: as many as fill the link.")
    ] = 0,
    switch_slots: Annotated[
        int, typer.Option(min=0, help="Slots of a switch; 0: those of the compiled program.")
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """Print the slots that a job needs, its bandwidth, and how many jobs a switch can take."""
    found = capacity(
        parse_link(link, parse_time(latency, "--latency")),
        lanes,
        hops=1 if racks == 1 else 2,
        round_trip=parse_time(round_trip, "--round-trip"),
        slots=slots,
        switch_slots=switch_slots,
    )
    if as_json:
        sys.stdout.write(json.dumps(asdict(found)) + "\n")
        return
    _out.print(f"link             {found.link / 1e9:.4g} Gb/s")
    _out.print(f"lanes            {found.lanes}, packets of {found.packet_bytes} bytes")
    _out.print(f"round trip       {found.round_trip * 1e6:.4g} us")
    _out.print(f"slots of a job   {found.slots}; {found.needed} fill the link")
    _out.print(f"bandwidth        {found.gradients / 1e9:.4g} Gb/s of gradients for each worker")
    _out.print(f"jobs per switch  {found.jobs}, of its {found.switch_slots:,} slots")


@app.command("simulate")
def simulate_slots(
    size: Size,
    workers: Annotated[int, typer.Option(min=1, max=MOST_WORKERS, help="Workers of the job.")] = 4,
    switches: RackCount = 1,
    spines: SpineCount = 1,
    link: LinkName = "10G",
    latency: Latency = "5us",
    oversubscription: Oversubscription = 0.0,
    background: Background = 0.0,
    collective: Annotated[str, typer.Option(help=f"One of {', '.join(COLLECTIVES)}.")] = "",
    slow: Annotated[
        float, typer.Option(help="The share of the workers' links that are slow.")
    ] = 0.0,
    slowdown: Annotated[
        float, typer.Option(help="The factor by which the rate of a slow link is lower.")
    ] = 10.0,
    loss: Annotated[float, typer.Option(help="The fraction of packets that a link loses.")] = 0.0,
    timeout: Annotated[str, typer.Option(help="Time until a chunk is sent again.")] = "1ms",
    slots: SlotCount = 512,
    lanes: Lanes = 256,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of losses, slow links and background traffic.")
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """Simulate the sum of a vector through a tree of switches, or a whole collective.

    Without --collective, the command simulates one exchange. For a collective
    of floats, it also simulates the exchange in which the workers agree on
    scales.
    """
    from innet.model.scenario import Scenario, SimulatedLink, switch_tree
    from innet.model.simulate import simulate, simulate_collective

    chosen = parse_link(link, parse_time(latency, "--latency"))
    simulated = SimulatedLink(8 / chosen.beta, chosen.alpha, loss, background=background)
    bytes_ = parse_amount(size, "--model-size")
    first, *above = switch_tree(simulated, [switches, spines], oversubscription, workers)
    scenario = Scenario(
        workers,
        bytes_,
        (replace(first, slow=slow, slowdown=slowdown), *above),
        SlotParameters(slots, lanes),
        timeout=parse_time(timeout, "--timeout"),
        seed=seed,
    )
    outcome = simulate_collective(scenario, collective) if collective else simulate(scenario)
    if as_json:
        sys.stdout.write(json.dumps(asdict(outcome)) + "\n")
        return
    _out.print(f"{outcome.seconds:.6f} s, goodput {outcome.goodput(bytes_) / 1e9:.3f} Gb/s")
    _out.print(
        f"{outcome.packets_sent:,} packets sent by workers, {outcome.retransmissions:,} of them again; "
        f"{outcome.lost:,} lost"
    )


@app.command("collectives")
def show_collectives(
    size: Size,
    workers: Annotated[int, typer.Option(min=2, max=MOST_WORKERS, help="Workers of the job.")] = 8,
    levels: Annotated[int, typer.Option(min=1, help="Levels of switches.")] = 1,
    link: LinkName = "10G",
    latency: Latency = "5us",
    slots: SlotCount = 512,
    lanes: Lanes = 256,
    as_json: AsJson = False,
) -> None:
    """Print the time of each collective, through switches and over Gloo.

    The size is that of the whole vector: before a reduce-scatter, and after an
    all-gather. "up" and "down" are the bytes of frames on a worker's link to a
    switch, divided by the size of the vector.
    """
    chosen = parse_link(link, parse_time(latency, "--latency"))
    between = replace(chosen, alpha=2 * chosen.alpha)  # two hosts are two links apart
    vector, window = parse_amount(size, "--model-size"), SlotParameters(slots, lanes)
    if not vector > 0:
        raise UsageError(f"--model-size {size}: a collective needs a vector of more than 0 bytes")
    times = {
        each: (
            through_switches(each, workers, vector, chosen, window, levels),
            over_gloo(each, workers, vector, between),
        )
        for each in COLLECTIVES
    }
    crossed = {each: link_bytes(each, workers, vector, window) for each in COLLECTIVES}
    if as_json:
        rows = [
            {"collective": each, "switches": a, "gloo": b}
            | dict(zip(("up", "down"), crossed[each], strict=True))
            for each, (a, b) in times.items()
        ]
        sys.stdout.write(json.dumps(rows) + "\n")
        return
    table = folding_table(
        "collective", "s through switches", "s over Gloo", "times as fast", "up", "down"
    )
    for each, (switches, gloo) in times.items():
        shares = (f"{nbytes / vector:.3g}" for nbytes in crossed[each])
        table.add_row(each, f"{switches:.4g}", f"{gloo:.4g}", f"{gloo / switches:.2f}", *shares)
    _out.print(table)


@app.command("scaling")
def show_scaling(
    workers: Annotated[
        str, typer.Option(help="The number of workers, or a range in which it doubles.")
    ] = "1..4352",
    size: Annotated[
        str,
        typer.Option("--model-size", help="Size of your model's gradients in bytes, as in 100M."),
    ] = "",
    compute: Annotated[
        str,
        typer.Option(help="Time of your model's forward and backward pass, as in 0.1 or 100ms."),
    ] = "",
    link: LinkName = "10G",
    latency: Latency = "5us",
    rack: Annotated[int, typer.Option(min=1, help="The most workers of a rack.")] = 64,
    spine: Annotated[int, typer.Option(min=1, help="The most racks below a spine switch.")] = 16,
    oversubscription: Oversubscription = 0.0,
    background: Background = 0.0,
    variation: Annotated[
        str,
        typer.Option(
            help="Standard deviation of compute times, divided by their mean. By default it is fitted to "
            "the published efficiencies. For your own model, the default is 0."
        ),
    ] = "",
    slow: Annotated[float, typer.Option(help="The share of passes that are slow.")] = 0.0,
    slowdown: Annotated[
        float, typer.Option(help="The factor by which slow passes take longer.")
    ] = 2.0,
    draws: Annotated[
        int, typer.Option(min=1, help="Steps to simulate for each number of workers.")
    ] = 10,
    slots: SlotCount = 512,
    lanes: Lanes = 256,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of compute times and background traffic.")
    ] = 0,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the results into this image file.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Simulate weak scaling, and show it beside published figures.

    Without a model of your own, the command simulates the neural networks of
    EASGD's Table 4, with their published step times.
    """
    from innet.model.published import TABLE_4
    from innet.model.scaling import Curve, ThreeTierNetwork, published_curve, weak_scaling
    from innet.model.scenario import SimulatedLink
    from innet.model.stragglers import Stragglers

    if plot:
        from innet.model import plot as drawing

        drawing.check(plot)
    if bool(size) != bool(compute):
        raise UsageError("a model of your own needs both --model-size and --compute")
    counts = parse_range(workers)
    chosen = parse_link(link, parse_time(latency, "--latency"))
    line = SimulatedLink(8 / chosen.beta, chosen.alpha, background=background)
    fabric = ThreeTierNetwork(line, SlotParameters(slots, lanes), rack, spine, oversubscription)
    spread = parse_amount(variation, "--variation") if variation else 0.0
    stragglers = Stragglers(spread, slow, slowdown)
    if size:
        own = Workload(parse_amount(size, "--model-size"), parse_time(compute, "--compute"))
        points = weak_scaling(counts, own, fabric, stragglers, draws, seed)
        curves = [Curve("model", points, stragglers)]
    else:
        curves = [
            published_curve(
                each, counts, fabric, stragglers, fit=not variation, draws=draws, seed=seed
            )
            for each in TABLE_4
        ]
    if as_json:
        rows = [{"model": each.name, **asdict(one)} for each in curves for one in each.points]
        sys.stdout.write(json.dumps(rows) + "\n")
    else:
        print_scaling(curves)
    if plot:
        drawing.scaling(curves, plot)


def _link(name: str, latency: str, gamma: str) -> LinkModel:
    link = parse_link(name, parse_time(latency, "--latency"))
    speed = parse_amount(gamma, "--gamma")
    return LinkModel(link.alpha, link.beta, 1 / speed if speed else 0.0)


def _fitted(path: Path) -> LinkModel:
    try:
        return LinkModel(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError) as problem:
        raise UsageError(
            f"cannot read a link from {path}: {problem}; innet model fit --output writes one"
        ) from None
