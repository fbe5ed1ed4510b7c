"""The tables of the state file, and the way from older versions of them."""

SCHEMA_VERSION = 14
CHECKSUM_SINCE = 4
"""The first version whose files have a checksum."""

_CHECKSUM = (
    "CREATE TABLE checksum (value BLOB NOT NULL)",  # see innet.controller.state.checksum
    "INSERT INTO checksum VALUES (x'')",
)

_OWNERS = (
    # The name in the certificate of the client that has created the job; empty without TLS.
    "ALTER TABLE jobs ADD COLUMN owner TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE events ADD COLUMN owner TEXT NOT NULL DEFAULT ''",
)

_DRAINS = (
    "ALTER TABLE switches ADD COLUMN drained INTEGER NOT NULL DEFAULT 0",
    # A JSON list of the switches that the job's term leaves out.
    "ALTER TABLE jobs ADD COLUMN drained TEXT NOT NULL DEFAULT '[]'",
)

_LOSSES = (
    # A JSON list of the lost switches that the job's term leaves out.
    "ALTER TABLE jobs ADD COLUMN lost TEXT NOT NULL DEFAULT '[]'",
)

_QUOTAS = (
    # What an owner may hold at once; 0 means no limit.
    """CREATE TABLE quotas (
        owner TEXT PRIMARY KEY,
        jobs INTEGER NOT NULL,
        slots INTEGER NOT NULL,
        workers INTEGER NOT NULL
    )""",
)

_LENDING = (
    "ALTER TABLE jobs ADD COLUMN min_slots INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE jobs ADD COLUMN priority INTEGER NOT NULL DEFAULT 0",
    # The first slot and the number of the slots that it borrows; null while it borrows none.
    "ALTER TABLE jobs ADD COLUMN borrowed_first INTEGER",
    "ALTER TABLE jobs ADD COLUMN borrowed_slots INTEGER",
)

_STATIONS = (
    # A JSON list of MAC address and port of the machines that are no workers.
    "ALTER TABLE switches ADD COLUMN stations TEXT NOT NULL DEFAULT '[]'",
)

_GROUP_RANKS = (
    # A JSON list of the workers' ranks in the group that the job sums a slice for.
    "ALTER TABLE jobs ADD COLUMN group_ranks TEXT NOT NULL DEFAULT '[]'",
)

_BITS = (
    # A bit is that of a contributor at a switch, no longer of a rank: trees begin a new term.
    "UPDATE jobs SET agreement = '' WHERE others != '[]'",
)

_EVENTS = (
    # What has happened to jobs, also to those that have ended. The checksum leaves it out.
    """CREATE TABLE events (
        number INTEGER PRIMARY KEY,
        job TEXT NOT NULL,
        at REAL NOT NULL,                -- seconds since 1970
        event TEXT NOT NULL,
        rank INTEGER,                    -- in the job's group; null if it is about no single worker
        term INTEGER NOT NULL,
        why TEXT NOT NULL
    )""",
    "CREATE INDEX events_by_job ON events (job)",
)

SCHEMA = (
    """CREATE TABLE switches (
        name TEXT PRIMARY KEY,
        grpc_address TEXT NOT NULL,
        device_id INTEGER NOT NULL,
        ports TEXT NOT NULL,             -- a JSON list
        mac TEXT NOT NULL,               -- the service's address
        ip TEXT NOT NULL,
        udp_port INTEGER NOT NULL,
        lanes INTEGER NOT NULL,
        uplinks TEXT NOT NULL,           -- a JSON list of parent, port and parent's port
        target TEXT NOT NULL,            -- what kind of switch it is
        artifact TEXT NOT NULL           -- the folder of its binary, if it needs one
    )""",
    """CREATE TABLE jobs (
        name TEXT PRIMARY KEY,
        switch TEXT NOT NULL REFERENCES switches (name),
        id INTEGER NOT NULL UNIQUE,
        workers INTEGER NOT NULL,
        quorum INTEGER NOT NULL,
        min_workers INTEGER NOT NULL,
        wanted_slots INTEGER NOT NULL,
        lease_s REAL NOT NULL,
        token_digest BLOB NOT NULL,
        number INTEGER NOT NULL UNIQUE,  -- in the order of creation
        term INTEGER NOT NULL,
        job_index INTEGER,               -- of its counters; null while the job waits for slots
        first_slot INTEGER,
        slots INTEGER,
        fresh INTEGER NOT NULL,
        agreement TEXT NOT NULL,         -- a JSON list of the fields of Resume; empty while there is none
        departed TEXT NOT NULL,          -- a JSON list of rank and reason
        others TEXT NOT NULL             -- a JSON list of the switches besides the first
    )""",
    """CREATE TABLE workers (
        job TEXT NOT NULL REFERENCES jobs (name) ON DELETE CASCADE,
        rank INTEGER NOT NULL,
        nonce INTEGER NOT NULL,
        fallback INTEGER NOT NULL,
        port INTEGER,                    -- where it is attached; null while that is not known
        mac TEXT,
        ip TEXT,
        udp_port INTEGER,
        switch TEXT,
        PRIMARY KEY (job, rank)
    )""",
    "CREATE TABLE last_job (id INTEGER NOT NULL, number INTEGER NOT NULL)",
    "INSERT INTO last_job VALUES (0, 0)",
    *_EVENTS,
    *_CHECKSUM,
    *_OWNERS,
    *_DRAINS,
    *_QUOTAS,
    *_LOSSES,
    *_LENDING,
    *_STATIONS,
    *_GROUP_RANKS,
)

UPGRADES = {
    1: (
        "ALTER TABLE switches ADD COLUMN uplinks TEXT NOT NULL DEFAULT '[]'",
        "ALTER TABLE jobs ADD COLUMN others TEXT NOT NULL DEFAULT '[]'",
        "ALTER TABLE workers ADD COLUMN switch TEXT",
        "UPDATE workers SET switch = (SELECT switch FROM jobs WHERE name = job) WHERE port NOT NULL",
    ),
    2: (
        "ALTER TABLE switches ADD COLUMN target TEXT NOT NULL DEFAULT 'bmv2'",
        "ALTER TABLE switches ADD COLUMN artifact TEXT NOT NULL DEFAULT ''",
    ),
    3: _CHECKSUM,
    4: _EVENTS,
    5: _OWNERS,
    6: _DRAINS,
    7: _QUOTAS,
    8: _LOSSES,
    9: _BITS,
    10: _LENDING,
    11: (),  # the checksum has another form
    12: _STATIONS,
    13: _GROUP_RANKS,
}
"""The statements that turn a file of one version into one of the next."""
