"""The manifests for Kubernetes: they fit its schemas, the commands' options, and each other."""

import re
import shlex
import tomllib
from typing import Any

import pytest
import yaml
from commands import run
from paths import ROOT

FOLDER = ROOT / "examples/kubernetes"
VERSION = "1.31"
"""The Kubernetes whose schemas are used."""

OBJECTS: list[dict[str, Any]] = [
    each for file in sorted(FOLDER.glob("*.yaml")) for each in yaml.safe_load_all(file.read_text())
]
PODS = [
    (each["metadata"]["name"], each["spec"]["template"]) for each in OBJECTS
    if "template" in each.get("spec", {})
]  # fmt: skip


@pytest.mark.parametrize(
    "thing", OBJECTS, ids=lambda each: f"{each['kind']}-{each['metadata']['name']}"
)
def test_every_object_fits_the_schema_of_its_kind(thing: dict[str, Any]):
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    kubernetes_validate.validate(thing, VERSION, strict=True)


@pytest.mark.parametrize(("name", "pod"), PODS, ids=[name for name, _ in PODS])
def test_a_pod_mounts_volumes_that_exist(name: str, pod: dict[str, Any]):
    [spec] = (each["spec"] for each in OBJECTS if each.get("spec", {}).get("template") is pod)
    claimed = [each["metadata"]["name"] for each in spec.get("volumeClaimTemplates", ())]
    volumes = {each["name"] for each in pod["spec"]["volumes"]} | {*claimed}
    for container in pod["spec"]["containers"]:
        assert {each["name"] for each in container["volumeMounts"]} == volumes


@pytest.mark.parametrize("name", ["controller", "switch"])
def test_the_commands_know_their_options(name: str):
    [[container]] = (pod["spec"]["containers"] for each, pod in PODS if each == name)
    command, *words = container["command"]
    helped = run(command, *words, "--help", COLUMNS="400").stdout
    for option in container["args"]:
        assert re.search(rf"{option.partition('=')[0]}\b", helped), option


def packages(extras: str) -> set[str]:
    """Return the names of the packages that innet's extras, such as ``demo,metrics``, install."""
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    found: set[str] = set()
    for each in (each for extra in extras.split(",") for each in known[extra]):
        inner = re.fullmatch(r"innet\[(.+)\]", each)
        found |= packages(inner[1]) if inner else {each.split(">")[0]}
    return found


def test_the_image_has_what_the_training_imports():
    said = re.search(r"'/src\[(.+)\]'", (FOLDER / "Dockerfile").read_text())
    assert said
    # examples/common.py imports scikit-learn, for the digits.
    assert {"torch", "scikit-learn"} <= packages(said[1])


def test_every_service_selects_pods():
    labels = [pod.get("metadata", {}).get("labels", {}) for _, pod in PODS]
    labels += [{"job-name": each["metadata"]["name"]} for each in OBJECTS if each["kind"] == "Job"]
    for service in (each for each in OBJECTS if each["kind"] == "Service"):
        wanted = service["spec"]["selector"].items()
        assert any(wanted <= each.items() for each in labels), service["metadata"]["name"]


def test_the_page_creates_every_secret_and_applies_every_file():
    page = (ROOT / "docs/kubernetes.md").read_text()
    words = {word for line in page.splitlines() for word in _words(line)}
    used = set(re.findall(r"secretName: (\S+)|secretKeyRef:\n +name: (\S+)", _manifests()))
    assert {name for names in used for name in names if name} <= words
    assert {str(file.relative_to(ROOT)) for file in FOLDER.glob("*.yaml")} <= words


def _manifests() -> str:
    return "\n".join(file.read_text() for file in FOLDER.glob("*.yaml"))


def _words(line: str) -> list[str]:
    return shlex.split(line) if line.startswith("kubectl ") else []
