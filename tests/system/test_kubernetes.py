"""The manifests for Kubernetes: they fit its schemas, the commands' options, and each other."""

import re
import shlex
import shutil
import ssl
import subprocess
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml
from commands import BIN, run
from paths import ROOT
from waiting import WITHIN

from innet.local.ports import free_cables
from innet.p4runtime import p4runtime_pb2 as p4rt
from innet.p4runtime import p4runtime_pb2_grpc
from innet.rpc import innet_pb2 as pb
from innet.rpc import innet_pb2_grpc as rpc
from innet.rpc import tls
from innet.rpc.certificates import issue, make
from innet.rpc.issued import revoke

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
    command, *words = [each for each in container["command"] if each != "python-raw"]
    helped = run(Path(command).name, *words, "--help", COLUMNS="400").stdout
    for option in container["args"]:
        assert re.search(rf"{option.partition('=')[0]}\b", helped), option


@pytest.mark.parametrize(("name", "pod"), PODS, ids=[name for name, _ in PODS])
def test_a_pod_has_no_root_and_writes_only_to_its_volumes(name: str, pod: dict[str, Any]):
    whole = pod["spec"]["securityContext"]
    assert whole["runAsNonRoot"]
    assert whole["runAsUser"] > 0
    assert whole["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not pod["spec"]["automountServiceAccountToken"]
    [container] = pod["spec"]["containers"]
    own = container["securityContext"]
    assert own["readOnlyRootFilesystem"]
    assert own["capabilities"]["drop"] == ["ALL"]
    added = own["capabilities"].get("add", [])
    # Without root, a process gets capabilities only from its file, which counts as an escalation.
    assert added == (["NET_RAW", "NET_ADMIN"] if name == "switch" else [])
    assert own["allowPrivilegeEscalation"] == bool(added)
    for mount in container["volumeMounts"]:
        assert "subPath" not in mount  # the kubelet never updates such a file


def test_a_training_shares_no_namespace_with_the_keys_of_servers():
    # Whoever may create pods in a namespace can mount its secrets.
    owners: dict[str, set[str]] = {}
    for thing in OBJECTS:
        if template := thing.get("spec", {}).get("template"):
            for volume in template["spec"]["volumes"]:
                sources = [volume, *volume.get("projected", {}).get("sources", ())]
                found = [each["secret"] for each in sources if "secret" in each]
                names = {each.get("name") or each.get("secretName") for each in found}
                owners.setdefault(thing["metadata"]["namespace"], set()).update(names)
    assert owners == {
        "innet": {"controller-certificates", "switch-certificates"},
        "innet-training": {"worker-certificates"},
    }


def test_the_image_gives_the_capabilities_of_the_switch():
    [pod] = (pod for name, pod in PODS if name == "switch")
    [container] = pod["spec"]["containers"]
    added = container["securityContext"]["capabilities"]["add"]
    said = re.search(r"setcap (\S+)\+ep \S+/(\S+)", (FOLDER / "Dockerfile").read_text())
    assert said
    assert said[1].split(",") == [f"cap_{each.lower()}" for each in added]
    assert container["command"][0] == said[2]


def test_the_image_has_what_the_training_imports():
    dockerfile = (FOLDER / "Dockerfile").read_text()
    [file] = re.findall(r"--require-hashes --requirement /(\S+)", dockerfile)
    # examples/common.py imports scikit-learn, for the digits.
    names = set(re.findall(r"(?m)^([\w-]+)==", (ROOT / file).read_text()))
    assert {"torch", "scikit-learn", "grpcio"} <= names


class Volume:
    """A projected volume as the kubelet makes it: one symbolic link changes all files at once."""

    def __init__(self, path: Path) -> None:
        self.path, self._version = path, 0
        path.mkdir()

    def put(self, *files: Path) -> None:
        """Give the volume new contents."""
        self._version += 1
        new = self.path / f"..{self._version}"
        new.mkdir()
        for each in files:
            shutil.copy(each, new)
            if not (link := self.path / each.name).is_symlink():
                link.symlink_to(f"..data/{each.name}")
        (self.path / "..data_tmp").symlink_to(new.name)
        (self.path / "..data_tmp").replace(self.path / "..data")
        if self._version > 1:
            shutil.rmtree(self.path / f"..{self._version - 1}")


def started(name: str, volume: Path, folder: Path) -> list[str]:
    """Return the command of a pod for this machine, with free ports, and a cable for each interface."""
    [[container]] = (pod["spec"]["containers"] for each, pod in PODS if each == name)
    command, *words = [each for each in container["command"] if each != "python-raw"]
    text = [
        option.replace("/etc/innet", str(volume)).replace("/var/lib/innet", str(folder))
        for option in container["args"]
    ]
    ports = [cable.interface for cable in free_cables(2)]
    for at, option in enumerate(text):
        if "0.0.0.0:" in option:
            text[at] = f"{option.partition('=')[0]}=127.0.0.1:0"
        elif option.startswith("--interface"):
            text[at] = f"{option.partition('@')[0]}@{ports.pop()}"
    return [str(BIN / Path(command).name), *words, *text]


@pytest.mark.parametrize("role", [tls.CONTROLLER, tls.SWITCH])
def test_a_running_pod_follows_the_kubelet_to_new_certificates_and_revocations(
    role: str, tmp_path: Path
):
    made = tmp_path / "certs"
    make(made, [])
    issue(made, "mallory", [tls.ADMIN])
    issue(made, "root", [tls.ADMIN])
    volume = Volume(tmp_path / "volume")
    files = [*tls.files(made, role), made / tls.REVOKED]
    volume.put(*files)
    with subprocess.Popen(
        started(role, volume.path, tmp_path), stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout
            address = server.stdout.readline().split()[1]
            assert code(address, made / "mallory", role) == grpc.StatusCode.OK
            revoke(made, "mallory")
            volume.put(*files)
            assert code(address, made / "mallory", role) == grpc.StatusCode.PERMISSION_DENIED
            assert code(address, made / "root", role) == grpc.StatusCode.OK
            before = shown(address)
            make(made, [])
            volume.put(*files)
            assert before != shown(address) == tls.certificate_path(made, role).read_text()
            assert code(address, made / "root", role) == grpc.StatusCode.OK
        finally:
            server.kill()


def shown(address: str) -> str:
    """Return the certificate that a server shows, in PEM."""
    host, _, port = address.rpartition(":")
    return ssl.get_server_certificate((host, int(port)), timeout=WITHIN)


def code(address: str, folder: Path, role: str) -> grpc.StatusCode:
    """Return how a call of an administrator ends."""
    credentials = tls.load(folder, tls.ADMIN).channel_credentials()
    with grpc.secure_channel(address, credentials) as channel:
        try:
            if role == tls.SWITCH:
                p4runtime_pb2_grpc.P4RuntimeStub(channel).Capabilities(
                    p4rt.CapabilitiesRequest(), timeout=WITHIN
                )
            else:
                rpc.ControllerStub(channel).ListJobs(pb.ListJobsRequest(), timeout=WITHIN)
        except grpc.RpcError as problem:
            found: grpc.StatusCode = problem.code()
            return found
    return grpc.StatusCode.OK


def test_every_service_selects_pods():
    labels = [pod.get("metadata", {}).get("labels", {}) for _, pod in PODS]
    labels += [{"job-name": each["metadata"]["name"]} for each in OBJECTS if each["kind"] == "Job"]
    for service in (each for each in OBJECTS if each["kind"] == "Service"):
        wanted = service["spec"]["selector"].items()
        assert any(wanted <= each.items() for each in labels), service["metadata"]["name"]


def test_the_page_creates_every_secret_and_applies_every_file():
    page = (ROOT / "docs/kubernetes.md").read_text()
    words = {word for line in page.splitlines() for word in _words(line)}
    named = r"secretName: (\S+)|(?:secretKeyRef|secret|configMap):\n +name: (\S+)"
    used = set(re.findall(named, _manifests()))
    assert {name for names in used for name in names if name} <= words
    assert {str(file.relative_to(ROOT)) for file in FOLDER.glob("*.yaml")} <= words


def _manifests() -> str:
    return "\n".join(file.read_text() for file in FOLDER.glob("*.yaml"))


def _words(line: str) -> list[str]:
    return shlex.split(line) if line.startswith("kubectl ") else []
