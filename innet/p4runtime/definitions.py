"""The classes of all messages and enumerations, in a descriptor pool of their own.

protobuf's default pool has one definition for each name in a process. Another package in this process may
define the same names, from another release of the same .proto files. A separate pool avoids conflicts.
"""

from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
from google.protobuf.message import Message
from google.protobuf.reflection import GeneratedProtocolMessageType

from innet.machine.packaged import read


def members(proto: str) -> dict[str, Any]:
    """Return what a .proto file defines, by name, as in a module that protoc generates."""
    return _MEMBERS[proto]


def _load() -> dict[str, dict[str, Any]]:
    """Return the members of every file. The files are in the order of their imports."""
    pool: Any = DescriptorPool()
    files = FileDescriptorSet.FromString(read(__package__, "p4runtime.binpb")).file
    for file in files:
        pool.AddSerializedFile(file.SerializeToString())
    return {file.name: _define(pool.FindFileByName(file.name)) for file in files}


def _define(file: Any) -> dict[str, Any]:
    module = f"{__package__}.{file.name.rpartition('/')[2].removesuffix('.proto')}_pb2"
    defined: dict[str, Any] = {"DESCRIPTOR": file}
    for name, enum in file.enum_types_by_name.items():
        defined[name] = EnumTypeWrapper(enum)
        defined.update({value.name: value.number for value in enum.values})
    for name, message in file.message_types_by_name.items():
        defined[name] = _message(message, module)
    return defined


def _message(descriptor: Any, module: str) -> Any:
    """Return a message's class, made as protobuf's `builder` makes it for generated code."""
    nested = {each.name: _message(each, module) for each in descriptor.nested_types}
    members = {**nested, "DESCRIPTOR": descriptor, "__module__": module}
    return GeneratedProtocolMessageType(descriptor.name, (Message,), members)


_MEMBERS = _load()
