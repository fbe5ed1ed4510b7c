"""P4Runtime in front of the switch.

Top down: `service` (gRPC) -> `arbitration` (who may write) and `device` (ports, and the program that
runs) -> `batches` (many updates as one) -> `pipeline` (one reader and one writer per kind of entity)
-> `tables`, `profiles`, `metering`, `registers`, `replication`, `value_sets`, `digests`. `schema`
binds P4Info's names and ids to the program's, `refusal` is how all of them say no, `reconcile` carries
state from one program to the next, `watch` wakes up for digests and idle entries.
"""
