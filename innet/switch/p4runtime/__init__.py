"""The P4Runtime server of the switch.

From the top down, `service` serves gRPC, `admission` refuses large requests before they are parsed,
`arbitration` decides which client may write, and `device` holds the ports and the running program.
`batches` treats many updates as one, and `pipeline` has one reader and one writer per kind of entity.
These are in `tables`, `direct_resources`, `profiles`, `counting`, `metering`, `registers`,
`replication`, `value_sets` and `digests`.

A table entry has several sides. `matches` turns its match fields into values and masks.
`entry_messages` checks its other parts, and `entry_state` reads and writes its counter and meter.
`default_entries` has the entries for packets that match no other, and `aging` finds idle entries.

`schema` binds the `entities` and `digest_types` of P4Info to the program's, and `info` checks a P4Info
before that. `credentials` has the server's certificates, and `revoked_clients` refuses revoked ones of
clients. `refusals` has the errors of all these modules, and `reconcile` carries state from one program
to the next. `notifier` wakes up for digests and idle entries, whose messages `parts` keeps small.
"""
