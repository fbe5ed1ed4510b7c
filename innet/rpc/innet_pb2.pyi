from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor
PATH_FALLBACK: Path
PATH_NONE: Path
PATH_SWITCH: Path

class Activity(_message.Message):
    __slots__ = ["busy"]
    BUSY_FIELD_NUMBER: _ClassVar[int]
    busy: bool
    def __init__(self, busy: bool = ...) -> None: ...

class AddSwitchRequest(_message.Message):
    __slots__ = ["artifact", "device_id", "grpc_address", "lanes", "name", "ports", "service", "stations", "target", "uplinks"]
    ARTIFACT_FIELD_NUMBER: _ClassVar[int]
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    GRPC_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    LANES_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PORTS_FIELD_NUMBER: _ClassVar[int]
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    STATIONS_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    UPLINKS_FIELD_NUMBER: _ClassVar[int]
    artifact: str
    device_id: int
    grpc_address: str
    lanes: int
    name: str
    ports: _containers.RepeatedScalarFieldContainer[int]
    service: Address
    stations: _containers.RepeatedCompositeFieldContainer[Station]
    target: str
    uplinks: _containers.RepeatedCompositeFieldContainer[Uplink]
    def __init__(self, name: _Optional[str] = ..., grpc_address: _Optional[str] = ..., device_id: _Optional[int] = ..., ports: _Optional[_Iterable[int]] = ..., service: _Optional[_Union[Address, _Mapping]] = ..., lanes: _Optional[int] = ..., uplinks: _Optional[_Iterable[_Union[Uplink, _Mapping]]] = ..., target: _Optional[str] = ..., artifact: _Optional[str] = ..., stations: _Optional[_Iterable[_Union[Station, _Mapping]]] = ...) -> None: ...

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
    __slots__ = ["job_id", "lanes", "lends", "min_workers", "rank", "workers"]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    LANES_FIELD_NUMBER: _ClassVar[int]
    LENDS_FIELD_NUMBER: _ClassVar[int]
    MIN_WORKERS_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    lanes: int
    lends: bool
    min_workers: int
    rank: int
    workers: int
    def __init__(self, job_id: _Optional[int] = ..., rank: _Optional[int] = ..., workers: _Optional[int] = ..., min_workers: _Optional[int] = ..., lanes: _Optional[int] = ..., lends: bool = ...) -> None: ...

class Bitmaps(_message.Message):
    __slots__ = ["switches"]
    SWITCHES_FIELD_NUMBER: _ClassVar[int]
    switches: _containers.RepeatedCompositeFieldContainer[SwitchBits]
    def __init__(self, switches: _Optional[_Iterable[_Union[SwitchBits, _Mapping]]] = ...) -> None: ...

class CheckJoinRequest(_message.Message):
    __slots__ = ["job", "rank", "token"]
    JOB_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    job: str
    rank: int
    token: str
    def __init__(self, job: _Optional[str] = ..., rank: _Optional[int] = ..., token: _Optional[str] = ...) -> None: ...

class CheckJoinResponse(_message.Message):
    __slots__ = ["service", "taken"]
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    TAKEN_FIELD_NUMBER: _ClassVar[int]
    service: Address
    taken: bool
    def __init__(self, service: _Optional[_Union[Address, _Mapping]] = ..., taken: bool = ...) -> None: ...

class Contributor(_message.Message):
    __slots__ = ["ranks"]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    ranks: _containers.RepeatedCompositeFieldContainer[RankRange]
    def __init__(self, ranks: _Optional[_Iterable[_Union[RankRange, _Mapping]]] = ...) -> None: ...

class Counters(_message.Message):
    __slots__ = ["answered", "asked", "completed", "ignored", "pending", "raised", "stale", "waiting"]
    ANSWERED_FIELD_NUMBER: _ClassVar[int]
    ASKED_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_FIELD_NUMBER: _ClassVar[int]
    IGNORED_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    RAISED_FIELD_NUMBER: _ClassVar[int]
    STALE_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    answered: int
    asked: int
    completed: int
    ignored: int
    pending: int
    raised: int
    stale: int
    waiting: int
    def __init__(self, waiting: _Optional[int] = ..., completed: _Optional[int] = ..., answered: _Optional[int] = ..., pending: _Optional[int] = ..., stale: _Optional[int] = ..., raised: _Optional[int] = ..., ignored: _Optional[int] = ..., asked: _Optional[int] = ...) -> None: ...

class CreateJobRequest(_message.Message):
    __slots__ = ["group_ranks", "lease_s", "min_slots", "min_workers", "name", "priority", "queue", "quorum", "slots", "switch", "token_digests", "workers"]
    GROUP_RANKS_FIELD_NUMBER: _ClassVar[int]
    LEASE_S_FIELD_NUMBER: _ClassVar[int]
    MIN_SLOTS_FIELD_NUMBER: _ClassVar[int]
    MIN_WORKERS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    QUORUM_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    SWITCH_FIELD_NUMBER: _ClassVar[int]
    TOKEN_DIGESTS_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    group_ranks: _containers.RepeatedScalarFieldContainer[int]
    lease_s: int
    min_slots: int
    min_workers: int
    name: str
    priority: int
    queue: bool
    quorum: int
    slots: int
    switch: str
    token_digests: _containers.RepeatedScalarFieldContainer[bytes]
    workers: int
    def __init__(self, name: _Optional[str] = ..., switch: _Optional[str] = ..., workers: _Optional[int] = ..., slots: _Optional[int] = ..., quorum: _Optional[int] = ..., queue: bool = ..., lease_s: _Optional[int] = ..., min_workers: _Optional[int] = ..., token_digests: _Optional[_Iterable[bytes]] = ..., min_slots: _Optional[int] = ..., priority: _Optional[int] = ..., group_ranks: _Optional[_Iterable[int]] = ...) -> None: ...

class CreateJobResponse(_message.Message):
    __slots__ = ["job", "token"]
    JOB_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    job: Job
    token: str
    def __init__(self, job: _Optional[_Union[Job, _Mapping]] = ..., token: _Optional[str] = ...) -> None: ...

class DeleteJobRequest(_message.Message):
    __slots__ = ["name"]
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DeleteJobResponse(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class Departed(_message.Message):
    __slots__ = ["ago_s", "rank", "reason"]
    AGO_S_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ago_s: float
    rank: int
    reason: str
    def __init__(self, rank: _Optional[int] = ..., reason: _Optional[str] = ..., ago_s: _Optional[float] = ...) -> None: ...

class Departure(_message.Message):
    __slots__ = ["more", "rank", "reason"]
    MORE_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    more: _containers.RepeatedCompositeFieldContainer[Departure]
    rank: int
    reason: str
    def __init__(self, rank: _Optional[int] = ..., reason: _Optional[str] = ..., more: _Optional[_Iterable[_Union[Departure, _Mapping]]] = ...) -> None: ...

class DrainSwitchRequest(_message.Message):
    __slots__ = ["force", "name"]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    force: bool
    name: str
    def __init__(self, name: _Optional[str] = ..., force: bool = ...) -> None: ...

class DrainSwitchResponse(_message.Message):
    __slots__ = ["jobs"]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[MovedJob]
    def __init__(self, jobs: _Optional[_Iterable[_Union[MovedJob, _Mapping]]] = ...) -> None: ...

class Farewell(_message.Message):
    __slots__ = ["reason"]
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class GetJobHistoryRequest(_message.Message):
    __slots__ = ["name"]
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class GetJobHistoryResponse(_message.Message):
    __slots__ = ["events"]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[JobEvent]
    def __init__(self, events: _Optional[_Iterable[_Union[JobEvent, _Mapping]]] = ...) -> None: ...

class GetJobRequest(_message.Message):
    __slots__ = ["name"]
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class GetSwitchRequest(_message.Message):
    __slots__ = ["name"]
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ["progress"]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    progress: Progress
    def __init__(self, progress: _Optional[_Union[Progress, _Mapping]] = ...) -> None: ...

class Invitation(_message.Message):
    __slots__ = ["lanes", "lease_s", "nonce", "service", "unsealed"]
    LANES_FIELD_NUMBER: _ClassVar[int]
    LEASE_S_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    UNSEALED_FIELD_NUMBER: _ClassVar[int]
    lanes: int
    lease_s: float
    nonce: int
    service: Address
    unsealed: bool
    def __init__(self, nonce: _Optional[int] = ..., service: _Optional[_Union[Address, _Mapping]] = ..., lanes: _Optional[int] = ..., lease_s: _Optional[float] = ..., unsealed: bool = ...) -> None: ...

class Job(_message.Message):
    __slots__ = ["asked_quorum", "asked_slots", "counters", "departures", "first_slot", "group_ranks", "heartbeat_s", "id", "joined", "lanes", "lease_s", "members", "min_slots", "min_workers", "name", "outage", "owner", "path", "priority", "quorum", "reason", "recoveries", "slots", "switch", "term", "tree", "waiting_for", "waiting_s", "worker_lease_s", "workers"]
    ASKED_QUORUM_FIELD_NUMBER: _ClassVar[int]
    ASKED_SLOTS_FIELD_NUMBER: _ClassVar[int]
    COUNTERS_FIELD_NUMBER: _ClassVar[int]
    DEPARTURES_FIELD_NUMBER: _ClassVar[int]
    FIRST_SLOT_FIELD_NUMBER: _ClassVar[int]
    GROUP_RANKS_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_S_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    JOINED_FIELD_NUMBER: _ClassVar[int]
    LANES_FIELD_NUMBER: _ClassVar[int]
    LEASE_S_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    MIN_SLOTS_FIELD_NUMBER: _ClassVar[int]
    MIN_WORKERS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    OUTAGE_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    QUORUM_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    RECOVERIES_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    SWITCH_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    TREE_FIELD_NUMBER: _ClassVar[int]
    WAITING_FOR_FIELD_NUMBER: _ClassVar[int]
    WAITING_S_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    WORKER_LEASE_S_FIELD_NUMBER: _ClassVar[int]
    asked_quorum: int
    asked_slots: int
    counters: Counters
    departures: _containers.RepeatedCompositeFieldContainer[Departed]
    first_slot: int
    group_ranks: _containers.RepeatedScalarFieldContainer[int]
    heartbeat_s: float
    id: int
    joined: _containers.RepeatedScalarFieldContainer[int]
    lanes: int
    lease_s: int
    members: _containers.RepeatedCompositeFieldContainer[WorkerStatus]
    min_slots: int
    min_workers: int
    name: str
    outage: bool
    owner: str
    path: Path
    priority: int
    quorum: int
    reason: str
    recoveries: int
    slots: int
    switch: str
    term: int
    tree: _containers.RepeatedCompositeFieldContainer[JobSwitch]
    waiting_for: _containers.RepeatedScalarFieldContainer[int]
    waiting_s: float
    worker_lease_s: float
    workers: int
    def __init__(self, name: _Optional[str] = ..., switch: _Optional[str] = ..., id: _Optional[int] = ..., term: _Optional[int] = ..., workers: _Optional[int] = ..., lanes: _Optional[int] = ..., first_slot: _Optional[int] = ..., slots: _Optional[int] = ..., joined: _Optional[_Iterable[int]] = ..., counters: _Optional[_Union[Counters, _Mapping]] = ..., quorum: _Optional[int] = ..., path: _Optional[_Union[Path, str]] = ..., reason: _Optional[str] = ..., members: _Optional[_Iterable[_Union[WorkerStatus, _Mapping]]] = ..., worker_lease_s: _Optional[float] = ..., tree: _Optional[_Iterable[_Union[JobSwitch, _Mapping]]] = ..., waiting_for: _Optional[_Iterable[int]] = ..., waiting_s: _Optional[float] = ..., departures: _Optional[_Iterable[_Union[Departed, _Mapping]]] = ..., outage: bool = ..., owner: _Optional[str] = ..., recoveries: _Optional[int] = ..., heartbeat_s: _Optional[float] = ..., asked_slots: _Optional[int] = ..., min_slots: _Optional[int] = ..., priority: _Optional[int] = ..., asked_quorum: _Optional[int] = ..., min_workers: _Optional[int] = ..., lease_s: _Optional[int] = ..., group_ranks: _Optional[_Iterable[int]] = ...) -> None: ...

class JobEvent(_message.Message):
    __slots__ = ["at", "event", "ranks", "term", "why"]
    AT_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    at: float
    event: str
    ranks: _containers.RepeatedScalarFieldContainer[int]
    term: int
    why: str
    def __init__(self, at: _Optional[float] = ..., event: _Optional[str] = ..., ranks: _Optional[_Iterable[int]] = ..., term: _Optional[int] = ..., why: _Optional[str] = ...) -> None: ...

class JobSwitch(_message.Message):
    __slots__ = ["counters", "parents", "switch", "workers"]
    COUNTERS_FIELD_NUMBER: _ClassVar[int]
    PARENTS_FIELD_NUMBER: _ClassVar[int]
    SWITCH_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    counters: Counters
    parents: _containers.RepeatedScalarFieldContainer[str]
    switch: str
    workers: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, switch: _Optional[str] = ..., parents: _Optional[_Iterable[str]] = ..., workers: _Optional[_Iterable[int]] = ..., counters: _Optional[_Union[Counters, _Mapping]] = ...) -> None: ...

class JoinEvent(_message.Message):
    __slots__ = ["admission", "bitmaps", "departure", "invitation", "pace", "recover", "resume", "waiting"]
    ADMISSION_FIELD_NUMBER: _ClassVar[int]
    BITMAPS_FIELD_NUMBER: _ClassVar[int]
    DEPARTURE_FIELD_NUMBER: _ClassVar[int]
    INVITATION_FIELD_NUMBER: _ClassVar[int]
    PACE_FIELD_NUMBER: _ClassVar[int]
    RECOVER_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    admission: Admission
    bitmaps: Bitmaps
    departure: Departure
    invitation: Invitation
    pace: Pace
    recover: Recover
    resume: Resume
    waiting: Waiting
    def __init__(self, invitation: _Optional[_Union[Invitation, _Mapping]] = ..., admission: _Optional[_Union[Admission, _Mapping]] = ..., departure: _Optional[_Union[Departure, _Mapping]] = ..., recover: _Optional[_Union[Recover, _Mapping]] = ..., resume: _Optional[_Union[Resume, _Mapping]] = ..., waiting: _Optional[_Union[Waiting, _Mapping]] = ..., pace: _Optional[_Union[Pace, _Mapping]] = ..., bitmaps: _Optional[_Union[Bitmaps, _Mapping]] = ...) -> None: ...

class JoinRequest(_message.Message):
    __slots__ = ["fallback", "job", "nonce", "rank", "token"]
    FALLBACK_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    fallback: bool
    job: str
    nonce: int
    rank: int
    token: str
    def __init__(self, job: _Optional[str] = ..., rank: _Optional[int] = ..., token: _Optional[str] = ..., fallback: bool = ..., nonce: _Optional[int] = ...) -> None: ...

class ListJobsRequest(_message.Message):
    __slots__ = ["detailed"]
    DETAILED_FIELD_NUMBER: _ClassVar[int]
    detailed: bool
    def __init__(self, detailed: bool = ...) -> None: ...

class ListJobsResponse(_message.Message):
    __slots__ = ["jobs", "left_out"]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[Job]
    left_out: int
    def __init__(self, jobs: _Optional[_Iterable[_Union[Job, _Mapping]]] = ..., left_out: _Optional[int] = ...) -> None: ...

class ListQuotasRequest(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class ListQuotasResponse(_message.Message):
    __slots__ = ["quotas"]
    QUOTAS_FIELD_NUMBER: _ClassVar[int]
    quotas: _containers.RepeatedCompositeFieldContainer[Quota]
    def __init__(self, quotas: _Optional[_Iterable[_Union[Quota, _Mapping]]] = ...) -> None: ...

class ListSwitchesRequest(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class ListSwitchesResponse(_message.Message):
    __slots__ = ["switches"]
    SWITCHES_FIELD_NUMBER: _ClassVar[int]
    switches: _containers.RepeatedCompositeFieldContainer[Switch]
    def __init__(self, switches: _Optional[_Iterable[_Union[Switch, _Mapping]]] = ...) -> None: ...

class MovedJob(_message.Message):
    __slots__ = ["job", "path"]
    JOB_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    job: str
    path: Path
    def __init__(self, job: _Optional[str] = ..., path: _Optional[_Union[Path, str]] = ...) -> None: ...

class Pace(_message.Message):
    __slots__ = ["heartbeat_s"]
    HEARTBEAT_S_FIELD_NUMBER: _ClassVar[int]
    heartbeat_s: float
    def __init__(self, heartbeat_s: _Optional[float] = ...) -> None: ...

class PortCounters(_message.Message):
    __slots__ = ["corrupted", "down", "port", "refused", "spoofed"]
    CORRUPTED_FIELD_NUMBER: _ClassVar[int]
    DOWN_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    SPOOFED_FIELD_NUMBER: _ClassVar[int]
    corrupted: int
    down: bool
    port: int
    refused: int
    spoofed: int
    def __init__(self, port: _Optional[int] = ..., refused: _Optional[int] = ..., corrupted: _Optional[int] = ..., spoofed: _Optional[int] = ..., down: bool = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ["busy", "bytes_received", "bytes_sent", "chunk", "chunks", "chunks_done", "corrupted", "exchange", "fallback_exchanges", "least_round_trip_s", "link_bits_per_s", "missing", "packets_received", "packets_sent", "remaining", "retransmissions", "round_trip_s", "sequence", "silent_s", "slot", "stuck_s", "timeout_s", "window"]
    BUSY_FIELD_NUMBER: _ClassVar[int]
    BYTES_RECEIVED_FIELD_NUMBER: _ClassVar[int]
    BYTES_SENT_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_DONE_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    CORRUPTED_FIELD_NUMBER: _ClassVar[int]
    EXCHANGE_FIELD_NUMBER: _ClassVar[int]
    FALLBACK_EXCHANGES_FIELD_NUMBER: _ClassVar[int]
    LEAST_ROUND_TRIP_S_FIELD_NUMBER: _ClassVar[int]
    LINK_BITS_PER_S_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    PACKETS_RECEIVED_FIELD_NUMBER: _ClassVar[int]
    PACKETS_SENT_FIELD_NUMBER: _ClassVar[int]
    REMAINING_FIELD_NUMBER: _ClassVar[int]
    RETRANSMISSIONS_FIELD_NUMBER: _ClassVar[int]
    ROUND_TRIP_S_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SILENT_S_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    STUCK_S_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    busy: bool
    bytes_received: int
    bytes_sent: int
    chunk: int
    chunks: int
    chunks_done: int
    corrupted: int
    exchange: int
    fallback_exchanges: int
    least_round_trip_s: float
    link_bits_per_s: int
    missing: _containers.RepeatedScalarFieldContainer[int]
    packets_received: int
    packets_sent: int
    remaining: int
    retransmissions: int
    round_trip_s: float
    sequence: int
    silent_s: float
    slot: int
    stuck_s: float
    timeout_s: float
    window: int
    def __init__(self, exchange: _Optional[int] = ..., busy: bool = ..., chunks: _Optional[int] = ..., remaining: _Optional[int] = ..., stuck_s: _Optional[float] = ..., silent_s: _Optional[float] = ..., chunk: _Optional[int] = ..., slot: _Optional[int] = ..., sequence: _Optional[int] = ..., missing: _Optional[_Iterable[int]] = ..., packets_sent: _Optional[int] = ..., packets_received: _Optional[int] = ..., bytes_sent: _Optional[int] = ..., bytes_received: _Optional[int] = ..., retransmissions: _Optional[int] = ..., chunks_done: _Optional[int] = ..., corrupted: _Optional[int] = ..., round_trip_s: _Optional[float] = ..., timeout_s: _Optional[float] = ..., window: _Optional[int] = ..., fallback_exchanges: _Optional[int] = ..., least_round_trip_s: _Optional[float] = ..., link_bits_per_s: _Optional[int] = ...) -> None: ...

class Quota(_message.Message):
    __slots__ = ["by_default", "jobs", "most_jobs", "most_slots", "most_workers", "name", "slots", "workers"]
    BY_DEFAULT_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    MOST_JOBS_FIELD_NUMBER: _ClassVar[int]
    MOST_SLOTS_FIELD_NUMBER: _ClassVar[int]
    MOST_WORKERS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    by_default: bool
    jobs: int
    most_jobs: int
    most_slots: int
    most_workers: int
    name: str
    slots: int
    workers: int
    def __init__(self, name: _Optional[str] = ..., most_jobs: _Optional[int] = ..., most_slots: _Optional[int] = ..., most_workers: _Optional[int] = ..., jobs: _Optional[int] = ..., slots: _Optional[int] = ..., workers: _Optional[int] = ..., by_default: bool = ...) -> None: ...

class RankRange(_message.Message):
    __slots__ = ["count", "first"]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    count: int
    first: int
    def __init__(self, first: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class Ready(_message.Message):
    __slots__ = ["exchange", "term"]
    EXCHANGE_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    exchange: int
    term: int
    def __init__(self, term: _Optional[int] = ..., exchange: _Optional[int] = ...) -> None: ...

class Recover(_message.Message):
    __slots__ = ["reason", "term"]
    REASON_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    reason: str
    term: int
    def __init__(self, term: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class RemoveSwitchRequest(_message.Message):
    __slots__ = ["name"]
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class RemoveSwitchResponse(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class Resume(_message.Message):
    __slots__ = ["exchange", "first_slot", "path", "reason", "shared", "slots", "term"]
    EXCHANGE_FIELD_NUMBER: _ClassVar[int]
    FIRST_SLOT_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SHARED_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    exchange: int
    first_slot: int
    path: Path
    reason: str
    shared: bool
    slots: int
    term: int
    def __init__(self, term: _Optional[int] = ..., path: _Optional[_Union[Path, str]] = ..., first_slot: _Optional[int] = ..., slots: _Optional[int] = ..., exchange: _Optional[int] = ..., shared: bool = ..., reason: _Optional[str] = ...) -> None: ...

class SetQuotaRequest(_message.Message):
    __slots__ = ["most_jobs", "most_slots", "most_workers", "name"]
    MOST_JOBS_FIELD_NUMBER: _ClassVar[int]
    MOST_SLOTS_FIELD_NUMBER: _ClassVar[int]
    MOST_WORKERS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    most_jobs: int
    most_slots: int
    most_workers: int
    name: str
    def __init__(self, name: _Optional[str] = ..., most_jobs: _Optional[int] = ..., most_slots: _Optional[int] = ..., most_workers: _Optional[int] = ...) -> None: ...

class SetSwitchPortsRequest(_message.Message):
    __slots__ = ["name", "ports", "uplinks"]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PORTS_FIELD_NUMBER: _ClassVar[int]
    UPLINKS_FIELD_NUMBER: _ClassVar[int]
    name: str
    ports: _containers.RepeatedScalarFieldContainer[int]
    uplinks: Uplinks
    def __init__(self, name: _Optional[str] = ..., ports: _Optional[_Iterable[int]] = ..., uplinks: _Optional[_Union[Uplinks, _Mapping]] = ...) -> None: ...

class Station(_message.Message):
    __slots__ = ["mac", "port"]
    MAC_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    mac: str
    port: int
    def __init__(self, mac: _Optional[str] = ..., port: _Optional[int] = ...) -> None: ...

class Switch(_message.Message):
    __slots__ = ["artifact", "device_id", "drained", "free_slots", "grpc_address", "lanes", "name", "port_counters", "ports", "problem", "reachable", "service", "slots", "stations", "taken", "target", "uplinks"]
    ARTIFACT_FIELD_NUMBER: _ClassVar[int]
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    DRAINED_FIELD_NUMBER: _ClassVar[int]
    FREE_SLOTS_FIELD_NUMBER: _ClassVar[int]
    GRPC_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    LANES_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PORTS_FIELD_NUMBER: _ClassVar[int]
    PORT_COUNTERS_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    REACHABLE_FIELD_NUMBER: _ClassVar[int]
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    STATIONS_FIELD_NUMBER: _ClassVar[int]
    TAKEN_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    UPLINKS_FIELD_NUMBER: _ClassVar[int]
    artifact: str
    device_id: int
    drained: bool
    free_slots: int
    grpc_address: str
    lanes: int
    name: str
    port_counters: _containers.RepeatedCompositeFieldContainer[PortCounters]
    ports: _containers.RepeatedScalarFieldContainer[int]
    problem: str
    reachable: bool
    service: Address
    slots: int
    stations: _containers.RepeatedCompositeFieldContainer[Station]
    taken: bool
    target: str
    uplinks: _containers.RepeatedCompositeFieldContainer[Uplink]
    def __init__(self, name: _Optional[str] = ..., grpc_address: _Optional[str] = ..., device_id: _Optional[int] = ..., ports: _Optional[_Iterable[int]] = ..., service: _Optional[_Union[Address, _Mapping]] = ..., lanes: _Optional[int] = ..., slots: _Optional[int] = ..., free_slots: _Optional[int] = ..., reachable: bool = ..., port_counters: _Optional[_Iterable[_Union[PortCounters, _Mapping]]] = ..., uplinks: _Optional[_Iterable[_Union[Uplink, _Mapping]]] = ..., target: _Optional[str] = ..., problem: _Optional[str] = ..., taken: bool = ..., drained: bool = ..., stations: _Optional[_Iterable[_Union[Station, _Mapping]]] = ..., artifact: _Optional[str] = ...) -> None: ...

class SwitchBits(_message.Message):
    __slots__ = ["contributors", "first_slot", "level_bit", "slots"]
    CONTRIBUTORS_FIELD_NUMBER: _ClassVar[int]
    FIRST_SLOT_FIELD_NUMBER: _ClassVar[int]
    LEVEL_BIT_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    contributors: _containers.RepeatedCompositeFieldContainer[Contributor]
    first_slot: int
    level_bit: int
    slots: int
    def __init__(self, first_slot: _Optional[int] = ..., slots: _Optional[int] = ..., level_bit: _Optional[int] = ..., contributors: _Optional[_Iterable[_Union[Contributor, _Mapping]]] = ...) -> None: ...

class Trouble(_message.Message):
    __slots__ = ["reason", "term"]
    REASON_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    reason: str
    term: int
    def __init__(self, term: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class UndrainSwitchRequest(_message.Message):
    __slots__ = ["name"]
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class Uplink(_message.Message):
    __slots__ = ["found", "parent", "parent_port", "port", "probed"]
    FOUND_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    PARENT_PORT_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    PROBED_FIELD_NUMBER: _ClassVar[int]
    found: str
    parent: str
    parent_port: int
    port: int
    probed: bool
    def __init__(self, parent: _Optional[str] = ..., port: _Optional[int] = ..., parent_port: _Optional[int] = ..., found: _Optional[str] = ..., probed: bool = ...) -> None: ...

class Uplinks(_message.Message):
    __slots__ = ["links"]
    LINKS_FIELD_NUMBER: _ClassVar[int]
    links: _containers.RepeatedCompositeFieldContainer[Uplink]
    def __init__(self, links: _Optional[_Iterable[_Union[Uplink, _Mapping]]] = ...) -> None: ...

class Waiting(_message.Message):
    __slots__ = ["ranks"]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    ranks: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, ranks: _Optional[_Iterable[int]] = ...) -> None: ...

class WorkerMessage(_message.Message):
    __slots__ = ["activity", "farewell", "heartbeat", "join", "ready", "trouble"]
    ACTIVITY_FIELD_NUMBER: _ClassVar[int]
    FAREWELL_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    JOIN_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    TROUBLE_FIELD_NUMBER: _ClassVar[int]
    activity: Activity
    farewell: Farewell
    heartbeat: Heartbeat
    join: JoinRequest
    ready: Ready
    trouble: Trouble
    def __init__(self, join: _Optional[_Union[JoinRequest, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., trouble: _Optional[_Union[Trouble, _Mapping]] = ..., ready: _Optional[_Union[Ready, _Mapping]] = ..., farewell: _Optional[_Union[Farewell, _Mapping]] = ..., activity: _Optional[_Union[Activity, _Mapping]] = ...) -> None: ...

class WorkerStatus(_message.Message):
    __slots__ = ["address", "disconnected", "port", "progress", "rank", "silent_s", "switch", "unreachable_s"]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    DISCONNECTED_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    SILENT_S_FIELD_NUMBER: _ClassVar[int]
    SWITCH_FIELD_NUMBER: _ClassVar[int]
    UNREACHABLE_S_FIELD_NUMBER: _ClassVar[int]
    address: Address
    disconnected: bool
    port: int
    progress: Progress
    rank: int
    silent_s: float
    switch: str
    unreachable_s: float
    def __init__(self, rank: _Optional[int] = ..., port: _Optional[int] = ..., address: _Optional[_Union[Address, _Mapping]] = ..., silent_s: _Optional[float] = ..., progress: _Optional[_Union[Progress, _Mapping]] = ..., switch: _Optional[str] = ..., unreachable_s: _Optional[float] = ..., disconnected: bool = ...) -> None: ...

class Path(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
