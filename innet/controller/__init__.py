"""The controller: who is in which job, and what the switches must know about it.

Top down: `server` (gRPC) -> `service` (requests in, answers out) -> `registry` (switches, jobs, workers)
-> `aggregation` (what the aggregation program needs in its tables) -> `p4runtime` (any program's
entries, by name). `client` is what everybody else uses to talk to it.
"""
