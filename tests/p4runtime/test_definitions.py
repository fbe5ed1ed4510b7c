"""P4Runtime's messages are independent of those of other packages in the same process."""

import itertools
import subprocess
import sys

import pytest
from google.protobuf import descriptor_pool
from paths import ROOT
from shells import shell_python
from waiting import WITHIN

from innet.p4runtime import code_pb2, p4info_pb2, p4runtime_pb2, p4types_pb2, status_pb2

_OURS = """
sys.path.append(sys.argv[1])
from innet.p4runtime import p4runtime_pb2 as ours
"""
_ANOTHER_RELEASE = """
from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import FileDescriptorProto
other = FileDescriptorProto(name="p4/v1/p4runtime.proto", package="p4.v1")
other.message_type.add(name="Entity")
descriptor_pool.Default().AddSerializedFile(other.SerializeToString())
"""
_THEIRS = """
from p4.v1 import p4runtime_pb2 as theirs
from google.rpc import status_pb2
"""
_CHECK = """
assert ours.Entity(table_entry=ours.TableEntry(table_id=7)).table_entry.table_id == 7
"""
_EXCHANGE = """
read = theirs.Entity.FromString(ours.Entity(table_entry=ours.TableEntry(table_id=7)).SerializeToString())
assert isinstance(read.table_entry, theirs.TableEntry) and read.table_entry.table_id == 7
"""


def test_messages_nest_and_pack_as_generated_ones():
    status = status_pb2.Status(code=code_pb2.NOT_FOUND)
    status.details.add().Pack(p4runtime_pb2.Error(canonical_code=code_pb2.INTERNAL, message="why"))
    error = p4runtime_pb2.Error()
    assert status_pb2.Status.FromString(status.SerializeToString()).details[0].Unpack(error)
    assert (error.canonical_code, error.message) == (13, "why")
    assert isinstance(p4info_pb2.P4Info().type_info, p4types_pb2.P4TypeInfo)
    assert p4info_pb2.MatchField.MatchType.Name(p4info_pb2.MatchField.LPM) == "LPM"
    assert p4runtime_pb2.Entity.__module__ == "innet.p4runtime.p4runtime_pb2"


@pytest.mark.parametrize("order", list(itertools.permutations((_OURS, _ANOTHER_RELEASE))))
def test_another_release_of_the_definitions_is_no_conflict(order: tuple[str, ...]):
    check([sys.executable], *order, _CHECK)


@pytest.mark.parametrize("order", list(itertools.permutations((_OURS, _THEIRS))))
def test_the_package_p4runtime_is_no_conflict(order: tuple[str, ...]):
    check(shell_python(), *order, _CHECK, _EXCHANGE)


def test_the_default_pool_has_none_of_them():
    assert p4runtime_pb2.DESCRIPTOR.pool is not descriptor_pool.Default()


def check(python: list[str], *parts: str) -> None:
    """Run parts of a program, which find innet's checkout by its first argument."""
    done = subprocess.run(
        [*python, "-c", "import sys\n" + "".join(parts), str(ROOT)],
        capture_output=True, text=True, timeout=WITHIN, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
