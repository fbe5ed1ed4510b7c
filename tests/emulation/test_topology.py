"""Topology files: valid content, the plans made of them, and refusals."""

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from innet.emulation.launch import HostExit
from innet.emulation.plan import Plan, plan
from innet.emulation.topology import CONTROLLER, Topology, load, parse
from innet.errors import UsageError

FILES = sorted(Path("topologies").glob("*.yaml"))
ONE_RACK = "switches: [{name: tor}]\nracks: [{switch: tor, hosts: 2}]\n"


def ends(made: Plan) -> list[tuple[str, int]]:
    both = [(link.child, link.parent) for link in made.links]
    return [(end.node, end.port) for end in itertools.chain.from_iterable(both)]


def neighbours(made: Plan) -> dict[str, set[str]]:
    """Return each node's neighbours for broadcasts: only first uplinks carry them."""
    further = {up for switch in made.switches for up in switch.uplinks[1:]}
    found: dict[str, set[str]] = {}
    for link in made.links:
        if link not in further:
            found.setdefault(link.child.node, set()).add(link.parent.node)
            found.setdefault(link.parent.node, set()).add(link.child.node)
    return found


def assert_sound(made: Plan) -> None:
    """Check that addresses and ports are unique, and that broadcasts reach every host once."""
    switches = [switch.name for switch in made.switches]
    stations = [*made.hosts, made.controller]
    addresses = [each.address for each in stations] + [made.service]
    assert len({address.ip for address in addresses}) == len(addresses)
    assert len({address.mac for address in addresses}) == len(addresses)
    assert len(set(ends(made))) == 2 * len(made.links)
    for link in made.links:
        assert len(link.child.interface) <= 15
        assert len(link.parent.interface) <= 15
        assert link.child.node not in switches or link.child.node != link.parent.node
    for switch in made.switches:
        own = {port for node, port in ends(made) if node == switch.name}
        assert set(switch.ports) == own
        assert all(
            switches.index(up.parent.node) < switches.index(switch.name) for up in switch.uplinks
        )
    reach = neighbours(made)
    tree = set(reach)
    assert {each.name for each in stations} <= tree
    # A connected graph with one link less than it has nodes has no circle.
    assert sum(map(len, reach.values())) == 2 * (len(tree) - 1)
    seen, ahead = {CONTROLLER}, [CONTROLLER]
    while ahead:
        new = reach[ahead.pop()] - seen
        seen |= new
        ahead += new
    assert seen == tree


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_topologies_that_come_along_are_sound(file: Path):
    assert_sound(plan(load(file)))


def test_there_are_topologies_that_come_along():
    assert {file.stem for file in FILES} >= {
        "leaf-spine", "one-rack", "two-racks-pbox", "two-racks-spine",
    }  # fmt: skip


@st.composite
def trees(draw: st.DrawFn) -> Topology:
    """Draw switches in any tree, with racks, and second uplinks to a switch."""
    count = draw(st.integers(1, 6))
    uplinks = [[]] + [[f"s{draw(st.integers(0, number - 1))}"] for number in range(1, count)]
    racks = [
        {"switch": f"s{number}", "hosts": draw(st.integers(1, 4))}
        for number in range(count)
        if [f"s{number}"] not in uplinks or draw(st.booleans())
    ]
    switches = [{"name": f"s{number}", "uplinks": up} for number, up in enumerate(uplinks)]
    if count > 1 and draw(st.booleans()):
        switches.append({"name": "other"})
        for number in draw(st.sets(st.integers(1, count - 1), min_size=1)):
            uplinks[number].append("other")
    kinds = draw(st.lists(st.sampled_from(["embedded", "bmv2"]), min_size=len(switches)))
    for switch, kind in zip(switches, kinds, strict=False):
        switch["kind"] = kind
    return Topology.model_validate({"switches": switches, "racks": racks})


@given(trees())
def test_every_tree_is_placed_soundly(topology: Topology):
    assert_sound(plan(topology))
    assert plan(topology) == plan(topology)


def test_ports_are_those_given_and_else_the_lowest_that_are_free():
    made = plan(
        parse("""
switches:
  - {name: spine}
  - {name: tor, uplinks: [{to: spine, port: 1, parent_port: 7}]}
racks: [{switch: tor, hosts: [alice, bob], ports: [2, 9]}, {switch: tor, hosts: 2}]
""")
    )
    assert [(link.name, link.child.port, link.parent.port) for link in made.links] == [
        ("alice-tor", 0, 2), ("bob-tor", 0, 9), ("h3-tor", 0, 3), ("h4-tor", 0, 4),
        ("tor-spine", 1, 7), ("ctl-spine", 0, 1),
    ]  # fmt: skip


def test_what_a_link_says_goes_before_what_all_links_say():
    made = plan(
        parse("""
link: {rate: 100mbit, cap: htb}
switches:
  - {name: spine}
  - {name: tor, uplinks: [{to: spine, link: {rate: 2.5gbit, queue: 5ms}}]}
racks: [{switch: tor, hosts: 1, link: {cap: tbf}}]
""")
    )
    specs = {link.name: (s.rate, s.cap, s.queue) for link in made.links for s in [link.spec]}
    assert specs == {
        "h1-tor": (100_000_000, "tbf", 20.0),
        "tor-spine": (2_500_000_000, "htb", 5.0),
        "ctl-spine": (None, "tbf", 20.0),
    }


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("switches: [", "file.yaml:1: "),
        ("- a\n- b\n", "file.yaml: a topology has switches and racks"),
        ("racks: []\n", "switches: Field required"),
        (ONE_RACK + "hosts: 3\n", "file.yaml:3: hosts: this field is unknown"),
        (ONE_RACK + "lanes: 100\n", "file.yaml:3: lanes: Input should be 64, 256 or 1024"),
        (ONE_RACK + "lanes: 1024\n", "packets with 1024 lanes need an mtu of 4152: add `mtu: 9000`"),
        (ONE_RACK + "mtu: 1400\n", "file.yaml:3: mtu: Input should be greater than or equal to 1500"),
        (ONE_RACK + "slots: 100\n", "file.yaml:3: slots: 100 slots: give a power of two"),
        (ONE_RACK + "link: {rate: 1mb}\n", "file.yaml:3: link.rate: '1mb' is not a rate: write it like"),
        (ONE_RACK + "link: {rate: 1bit}\n", "file.yaml:3: link.rate: Input should be greater"),
        (ONE_RACK + "link: {cap: red}\n", "file.yaml:3: link.cap: Input should be 'tbf' or 'htb'"),
        (ONE_RACK + "link: {queue: 3}\n", "file.yaml:3: link.queue: 3 is not a time: write it like 20ms"),
        (ONE_RACK + "network: 10.0.0.0/30\n", "10.0.0.0/30 is too small for 4 addresses"),
        (ONE_RACK.replace("tor", "ToR"), "file.yaml:1: switches.0.name: 'ToR' is not a name"),
        (ONE_RACK.replace("name: tor", "name: x"), "to 'tor', which is not in switches"),
        (ONE_RACK.replace("tor", "ctl"), "the name 'ctl' is the controller's"),
        (ONE_RACK.replace("tor", "h2"), "2 nodes are called 'h2'"),
        (ONE_RACK.replace("2", "0"), "file.yaml:2: racks.0.hosts: hosts is 0: give their number"),
        (ONE_RACK.replace("2", "[a, a]"), "2 nodes are called 'a'"),
        (ONE_RACK.replace("2", "65"), "65 hosts and switches below 'tor': it can have 64"),
        (ONE_RACK.replace("2", "2, ports: [1]"), "racks.0: 1 ports for 2 hosts: give one for each"),
        (ONE_RACK.replace("2", "2, ports: [4, 4]"), "port 4 of tor is given twice"),
        (ONE_RACK.replace("2", "2, ports: [4, 510]"), "racks.0.ports.1: Input should be less"),
        (ONE_RACK.replace("tor}", "tor, kind: ovs}"), "switches.0.kind: Input should be 'embedded'"),
        (ONE_RACK.replace("tor}", "tor, uplinks: [x]}"), "its parent 'x' is not in switches or servers"),
        (ONE_RACK.replace("tor}", "tor, uplinks: [tor]}"), "the uplinks form a cycle, tor to tor"),
        (ONE_RACK.replace("tor}]", "tor}, {name: b}]"), "nothing is below 'b'"),
        (
            "switches: [{name: a}, {name: b}]\nracks: [{switch: a, hosts: 1}, {switch: b, hosts: 1}]",
            "the racks are not in one tree: the first uplinks lead from a to a, b to b",
        ),
        (
            "servers: [{name: s}]\nswitches: [{name: a, uplinks: [s]}]\nracks: [{switch: s, hosts: 1}]",
            "a rack is attached to the server 's': attach it to a switch",
        ),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused_with_the_place_and_the_reason(text: str, why: str):
    with pytest.raises(UsageError) as refused:
        plan(parse(text, "file.yaml"))
    assert why in str(refused.value)


def in_a_tree(hosts: int) -> str:
    switches = "[{name: top}, {name: a, uplinks: [top]}, {name: b, uplinks: [top]}]"
    return f"switches: {switches}\nracks: [{{switch: a, hosts: {hosts}}}, {{switch: b, hosts: 1}}]"


def test_a_rack_in_a_tree_has_as_many_hosts_as_the_controller_admits():
    assert_sound(plan(parse(in_a_tree(63))))
    with pytest.raises(
        UsageError, match="64 hosts and switches below 'a': in its tree it can have 63"
    ):
        parse(in_a_tree(64))


def test_all_that_is_wrong_is_said_at_once():
    with pytest.raises(UsageError) as refused:
        parse("switches:\n  - name: A\nracks:\n  - hosts: 0\n", "x.yaml")
    assert [line.split(": ")[:2] for line in str(refused.value).splitlines()] == [
        ["x.yaml:2", "switches.0.name"], ["x.yaml:4", "racks.0.switch"], ["x.yaml:4", "racks.0.hosts"],
    ]  # fmt: skip


def test_a_file_that_cannot_be_read_is_named():
    with pytest.raises(UsageError, match=r"cannot read nowhere\.yaml: No such file"):
        load(Path("nowhere.yaml"))


def test_every_end_of_a_host_has_words():
    codes = {None: "stopped", 0: "exit code 0", 3: "exit code 3", -9: "killed by SIGKILL"}
    for code, words in {**codes, -40: "killed by signal 40"}.items():
        assert str(HostExit("h1", code)) == words
