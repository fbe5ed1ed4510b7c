"""docs/metrics.md and docs/findings.md tell all metrics and findings, and no others."""

import re

import pytest
from paths import ROOT

from innet.controller.controller import Controller
from innet.controller.jobs.history import Cause
from innet.controller.metrics import ControllerCollector
from innet.controller.state.registry import Policy
from innet.controller.state.store import Store
from innet.host.metrics import AgentCollector
from innet.observe.job_rules import JOB_RULES, UNEXPLAINED
from innet.observe.port_rules import PORT_RULES
from innet.observe.tree_rules import TREE_RULES
from innet.observe.worker_rules import WORKER_RULES

DOCS = ROOT / "docs"
METRICS = (DOCS / "metrics.md").read_text()
FINDINGS = (DOCS / "findings.md").read_text()
TABLES, ALERTS = METRICS.split("## Alerts")
SWITCH = (DOCS / "switch.md").read_text()
MONITORING = ROOT / "examples/monitoring"


def section(page: str, title: str) -> str:
    """Return the text between a heading and the next."""
    return re.split(r"^#+ ", page.split(f"# {title}\n")[1], maxsplit=1, flags=re.MULTILINE)[0]


def first_cells(text: str) -> list[str]:
    """Names in the first column of a section's table."""
    rows = re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)
    return [name for row in rows for name in re.findall(r"`(\w+)`", row)]


def served(names: list[str], families) -> None:
    exported = {
        f"{family.name}_total" if family.type == "counter" else family.name for family in families
    }
    assert sorted(names) == sorted(exported)


def test_a_workers_metrics_are_those_that_are_served():
    served(first_cells(section(METRICS, "Of a worker")), AgentCollector().collect())


def test_the_controllers_metrics_are_those_that_are_served():
    controller = Controller(Store(None), Policy())
    try:
        served(
            first_cells(section(METRICS, "Of the controller")),
            ControllerCollector(controller).collect(),
        )
    finally:
        controller.close()


@pytest.mark.parametrize(
    ("title", "table"),
    [
        ("Findings about a worker", WORKER_RULES),
        ("Findings about the job", (*JOB_RULES, UNEXPLAINED)),
        ("Findings about a switch below another", TREE_RULES),
        ("Findings about a port", PORT_RULES),
    ],
)
def test_findings_are_listed_in_the_order_in_which_they_are_looked_for(title: str, table):
    assert first_cells(section(FINDINGS, title)) == [rule.name for rule in table]


@pytest.mark.parametrize("file", ["alerts.yml", "grafana.json"])
def test_alerts_and_dashboard_are_about_metrics_that_there_are(file: str):
    used = set(re.findall(r"innet_\w+", (MONITORING / file).read_text()))
    assert used
    assert used <= set(re.findall(r"innet_\w+", TABLES + SWITCH))


def test_every_alert_is_listed():
    alerts = re.findall(r"alert: (\w+)", (MONITORING / "alerts.yml").read_text())
    assert sorted(first_cells(ALERTS)) == sorted(alerts)


def test_every_cause_of_a_term_is_listed():
    [row] = [line for line in METRICS.splitlines() if "`innet_controller_terms_total`" in line]
    assert [cause.value for cause in Cause if f"`{cause}`" not in row] == []
