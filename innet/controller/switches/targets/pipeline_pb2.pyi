from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class BfPipelineConfig(_message.Message):
    __slots__ = ["bfruntime_info", "p4_name", "profiles"]
    class Profile(_message.Message):
        __slots__ = ["binary", "context", "pipe_scope", "profile_name"]
        BINARY_FIELD_NUMBER: _ClassVar[int]
        CONTEXT_FIELD_NUMBER: _ClassVar[int]
        PIPE_SCOPE_FIELD_NUMBER: _ClassVar[int]
        PROFILE_NAME_FIELD_NUMBER: _ClassVar[int]
        binary: bytes
        context: bytes
        pipe_scope: _containers.RepeatedScalarFieldContainer[int]
        profile_name: str
        def __init__(self, profile_name: _Optional[str] = ..., context: _Optional[bytes] = ..., binary: _Optional[bytes] = ..., pipe_scope: _Optional[_Iterable[int]] = ...) -> None: ...
    BFRUNTIME_INFO_FIELD_NUMBER: _ClassVar[int]
    P4_NAME_FIELD_NUMBER: _ClassVar[int]
    PROFILES_FIELD_NUMBER: _ClassVar[int]
    bfruntime_info: bytes
    p4_name: str
    profiles: _containers.RepeatedCompositeFieldContainer[BfPipelineConfig.Profile]
    def __init__(self, p4_name: _Optional[str] = ..., bfruntime_info: _Optional[bytes] = ..., profiles: _Optional[_Iterable[_Union[BfPipelineConfig.Profile, _Mapping]]] = ...) -> None: ...
