from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AddSwitchRequest(_message.Message):
    __slots__ = ["device_id", "grpc_address", "lanes", "name", "ports", "service"]
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    GRPC_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    LANES_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PORTS_FIELD_NUMBER: _ClassVar[int]
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    device_id: int
    grpc_address: str
    lanes: int
    name: str
    ports: _containers.RepeatedScalarFieldContainer[int]
    service: Address
    def __init__(self, name: _Optional[str] = ..., grpc_address: _Optional[str] = ..., device_id: _Optional[int] = ..., ports: _Optional[_Iterable[int]] = ..., service: _Optional[_Union[Address, _Mapping]] = ..., lanes: _Optional[int] = ...) -> None: ...

class Address(_message.Message):
    __slots__ = ["ip", "mac", "udp_port"]
    IP_FIELD_NUMBER: _ClassVar[int]
    MAC_FIELD_NUMBER: _ClassVar[int]
    UDP_PORT_FIELD_NUMBER: _ClassVar[int]
    ip: str
    mac: str
    udp_port: int
    def __init__(self, mac: _Optional[str] = ..., ip: _Optional[str] = ..., udp_port: _Optional[int] = ...) -> None: ...

class Admission(_message.Message):
    __slots__ = ["epoch", "first_slot", "job_id", "lanes", "rank", "slots", "workers"]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FIRST_SLOT_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    LANES_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    first_slot: int
    job_id: int
    lanes: int
    rank: int
    slots: int
    workers: int
    def __init__(self, job_id: _Optional[int] = ..., epoch: _Optional[int] = ..., rank: _Optional[int] = ..., workers: _Optional[int] = ..., lanes: _Optional[int] = ..., first_slot: _Optional[int] = ..., slots: _Optional[int] = ...) -> None: ...

class Counters(_message.Message):
    __slots__ = ["answered", "completed", "pending", "stale", "waiting"]
    ANSWERED_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    STALE_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    answered: int
    completed: int
    pending: int
    stale: int
    waiting: int
    def __init__(self, waiting: _Optional[int] = ..., completed: _Optional[int] = ..., answered: _Optional[int] = ..., pending: _Optional[int] = ..., stale: _Optional[int] = ...) -> None: ...

class CreateJobRequest(_message.Message):
    __slots__ = ["name", "slots", "switch", "workers"]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    SWITCH_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    name: str
    slots: int
    switch: str
    workers: int
    def __init__(self, name: _Optional[str] = ..., switch: _Optional[str] = ..., workers: _Optional[int] = ..., slots: _Optional[int] = ...) -> None: ...

class DeleteJobRequest(_message.Message):
    __slots__ = ["name"]
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DeleteJobResponse(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class Departure(_message.Message):
    __slots__ = ["rank", "reason"]
    RANK_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    rank: int
    reason: str
    def __init__(self, rank: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class GetJobRequest(_message.Message):
    __slots__ = ["name"]
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class Invitation(_message.Message):
    __slots__ = ["lanes", "nonce", "service"]
    LANES_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    lanes: int
    nonce: int
    service: Address
    def __init__(self, nonce: _Optional[int] = ..., service: _Optional[_Union[Address, _Mapping]] = ..., lanes: _Optional[int] = ...) -> None: ...

class Job(_message.Message):
    __slots__ = ["counters", "epoch", "first_slot", "id", "joined", "lanes", "name", "slots", "switch", "workers"]
    COUNTERS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FIRST_SLOT_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    JOINED_FIELD_NUMBER: _ClassVar[int]
    LANES_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    SWITCH_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    counters: Counters
    epoch: int
    first_slot: int
    id: int
    joined: _containers.RepeatedScalarFieldContainer[int]
    lanes: int
    name: str
    slots: int
    switch: str
    workers: int
    def __init__(self, name: _Optional[str] = ..., switch: _Optional[str] = ..., id: _Optional[int] = ..., epoch: _Optional[int] = ..., workers: _Optional[int] = ..., lanes: _Optional[int] = ..., first_slot: _Optional[int] = ..., slots: _Optional[int] = ..., joined: _Optional[_Iterable[int]] = ..., counters: _Optional[_Union[Counters, _Mapping]] = ...) -> None: ...

class JoinEvent(_message.Message):
    __slots__ = ["admission", "departure", "invitation"]
    ADMISSION_FIELD_NUMBER: _ClassVar[int]
    DEPARTURE_FIELD_NUMBER: _ClassVar[int]
    INVITATION_FIELD_NUMBER: _ClassVar[int]
    admission: Admission
    departure: Departure
    invitation: Invitation
    def __init__(self, invitation: _Optional[_Union[Invitation, _Mapping]] = ..., admission: _Optional[_Union[Admission, _Mapping]] = ..., departure: _Optional[_Union[Departure, _Mapping]] = ...) -> None: ...

class JoinRequest(_message.Message):
    __slots__ = ["job", "rank"]
    JOB_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    job: str
    rank: int
    def __init__(self, job: _Optional[str] = ..., rank: _Optional[int] = ...) -> None: ...

class ListJobsRequest(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class ListJobsResponse(_message.Message):
    __slots__ = ["jobs"]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[Job]
    def __init__(self, jobs: _Optional[_Iterable[_Union[Job, _Mapping]]] = ...) -> None: ...

class ListSwitchesRequest(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class ListSwitchesResponse(_message.Message):
    __slots__ = ["switches"]
    SWITCHES_FIELD_NUMBER: _ClassVar[int]
    switches: _containers.RepeatedCompositeFieldContainer[Switch]
    def __init__(self, switches: _Optional[_Iterable[_Union[Switch, _Mapping]]] = ...) -> None: ...

class Switch(_message.Message):
    __slots__ = ["device_id", "free_slots", "grpc_address", "lanes", "name", "ports", "service", "slots"]
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    FREE_SLOTS_FIELD_NUMBER: _ClassVar[int]
    GRPC_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    LANES_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PORTS_FIELD_NUMBER: _ClassVar[int]
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    device_id: int
    free_slots: int
    grpc_address: str
    lanes: int
    name: str
    ports: _containers.RepeatedScalarFieldContainer[int]
    service: Address
    slots: int
    def __init__(self, name: _Optional[str] = ..., grpc_address: _Optional[str] = ..., device_id: _Optional[int] = ..., ports: _Optional[_Iterable[int]] = ..., service: _Optional[_Union[Address, _Mapping]] = ..., lanes: _Optional[int] = ..., slots: _Optional[int] = ..., free_slots: _Optional[int] = ...) -> None: ...
