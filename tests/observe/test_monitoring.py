"""The alerts and the dashboard, in Prometheus: on recorded series, and with a live rack."""

import contextlib
import json
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from commands import serving
from paths import ROOT
from racks import WITHIN, free_cables, means
from switches import running_switch

from innet.host.join import join
from innet.local.ports import free_tcp_port
from innet.rpc import innet_pb2 as pb
from innet.rpc.client import connect

FOLDER = ROOT / "examples/monitoring"
RULES = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"][0]["rules"]
DASHBOARD = json.loads((FOLDER / "grafana.json").read_text())
SERIES = {
    "InnetDown": ('up{job="innet-controller"}', "1x5 0x60", "1x60"),
    "InnetStalled": ('innet_agent_stuck_seconds{job="a",rank="0"}', "0+5x60", "0x30 20 0x30"),
    "InnetWorkerMissing": (
        'innet_controller_job_workers{job="a",state="missing"}', "1x60", "1x5 0x60",
    ),
    "InnetCertificateExpires": (
        "innet_controller_certificate_expiry_timestamp_seconds", "1200000x60", "1300000x60",
    ),
    "InnetPortDown": ('innet_switch_port_up{port="1"}', "1x5 0x60", "1x60"),
    "InnetFallback": ('innet_controller_job_path{job="a",path="fallback"}', "1x60", "1x2 0x60"),
    "InnetUnsupportedTensors": (
        'innet_agent_fallbacks_total{job="a",rank="0",reason="dtype"}', "0x50 1x10", "1x60",
    ),
    "InnetSwitchUnreachable": ('innet_controller_switch_reachable{switch="a"}', "0x60", "1x60"),
    "InnetWorkerLost": ('innet_controller_leases_lost_total{job="a"}', "0x50 1x10", "2x60"),
    "InnetDamagedPackets": (
        'innet_agent_corrupted_packets_total{job="a",rank="0"}', "0+1x60", "7x60",
    ),
    "InnetSpoofing": (
        'innet_controller_switch_port_dropped_packets_total{switch="a",port="1",reason="spoofed"}',
        "0x50 1x10", "3x60",
    ),
    "InnetDrift": ('innet_controller_drift_total{switch="a"}', "0x50 1x10", "3x60"),
    "InnetLoss": ('innet_agent_receive_packets_total{job="a",rank="0"}', "0+98x60", "0+100x60"),
}  # fmt: skip
"""For each alert: a series, ten seconds between its values, that raises it, and one that does not."""
BESIDES = {"InnetLoss": ('innet_agent_transmit_packets_total{job="a",rank="0"}', "0+100x60")}
EXCUSES = {"InnetSwitchUnreachable": ('innet_controller_switch_drained{switch="a"}', "1x60")}
"""For some alerts: a series beside which the first one does not raise them."""
needs_promtool = pytest.mark.skipif(
    not shutil.which("promtool"), reason="promtool is not on the PATH"
)


def promtool(*arguments: str | Path) -> None:
    done = subprocess.run(
        ["promtool", *arguments], capture_output=True, text=True, timeout=WITHIN, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_recorded_series():
    assert {rule["alert"] for rule in RULES} == SERIES.keys()


@needs_promtool
def test_the_configuration_is_valid():
    promtool("check", "config", FOLDER / "prometheus.yml")


@needs_promtool
def test_alerts_are_raised_by_faults_and_only_by_them(tmp_path: Path):
    tests = []
    for name, (series, faulty, healthy) in SERIES.items():
        others = [BESIDES[name]] if name in BESIDES else []
        cases = [(faulty, others, True), (healthy, others, False)]
        if name in EXCUSES:
            cases.append((faulty, [*others, EXCUSES[name]], False))
        for values, beside, raised in cases:
            shown = [{"series": each, "values": its} for each, its in [(series, values), *beside]]
            # An expression over the alerts themselves, so that labels need not be repeated here.
            query = {
                "expr": f'count(ALERTS{{alertname="{name}",alertstate="firing"}}) or vector(0)',
                "eval_time": "9m50s",
                "exp_samples": [{"labels": "{}", "value": int(raised)}],
            }
            tests.append({"interval": "10s", "input_series": shown, "promql_expr_test": [query]})
    file = tmp_path / "tests.yml"
    file.write_text(
        yaml.safe_dump(
            {
                "rule_files": [str(FOLDER / "alerts.yml")],
                "evaluation_interval": "10s",
                "tests": tests,
            }
        )
    )
    promtool("test", "rules", file)


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[str]:
    """Run a rack with two workers, and Prometheus, which scrapes all of it. Yield its address."""
    metrics = [f"127.0.0.1:{free_tcp_port()}" for _ in range(4)]
    address = f"127.0.0.1:{free_tcp_port()}"
    config = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    config["global"]["scrape_interval"] = "1s"
    del config["rule_files"]
    for scrape, targets in zip(
        config["scrape_configs"], (metrics[:1], metrics[1:2], metrics[2:]), strict=True
    ):
        scrape["static_configs"] = [{"targets": targets}]
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    command = [
        "prometheus", f"--config.file={tmp_path}/prometheus.yml",
        f"--storage.tsdb.path={tmp_path}/data", f"--web.listen-address={address}",
    ]  # fmt: skip
    with contextlib.ExitStack() as stack:
        switch = stack.enter_context(running_switch(2, "--metrics-addr", metrics[1]))
        _, controller = stack.enter_context(serving("--metrics-addr", metrics[0]))
        channel, stub = connect(controller, WITHIN)
        stack.enter_context(channel)
        stub.AddSwitch(pb.AddSwitchRequest(name="tor", grpc_address=switch.address, ports=[1, 2]))
        token = stub.CreateJob(pb.CreateJobRequest(name="train", switch="tor", workers=2)).token
        agents = []
        for rank, link in enumerate(free_cables(switch)):
            agents.append(stack.enter_context(join(controller, "train", rank, link, token=token)))
            agents[-1].show_metrics("train", metrics[2 + rank])
        server = stack.enter_context(
            subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        )
        stack.callback(server.kill)
        wait_for_samples(address, agents)
        yield address


def wait_for_samples(address: str, agents: list[Any]) -> None:
    """Sum until Prometheus has two samples of everything that is scraped."""
    deadline = time.monotonic() + WITHIN
    while time.monotonic() < deadline:
        means(agents, *[np.ones(10_000, np.float32)] * 2)
        with contextlib.suppress(OSError):
            scraped = query(address, "count(count_over_time(up[1m]) > 2)")
            if scraped and scraped[0]["value"][1] == "4":
                return
    raise AssertionError("Prometheus does not scrape")


def query(address: str, expression: str) -> list[Any]:
    """Return the result of an expression."""
    arguments = urllib.parse.urlencode({"query": expression})
    with urllib.request.urlopen(f"http://{address}/api/v1/query?{arguments}", timeout=60) as found:
        answer = json.load(found)
    assert answer["status"] == "success"
    return answer["data"]["result"]


@pytest.mark.skipif(not shutil.which("prometheus"), reason="prometheus is not on the PATH")
def test_every_query_of_the_dashboard_and_of_the_alerts_finds_series_of_a_live_rack(
    prometheus: str,
):
    expressions = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    assert len(expressions) > 10
    assert [each for each in expressions if not query(prometheus, each)] == []
    assert [rule["alert"] for rule in RULES if query(prometheus, rule["expr"])] == []
    assert len(query(prometheus, "innet_build_info")) == 4
