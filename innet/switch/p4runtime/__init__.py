"""The P4Runtime server of the switch.

From the top down, `service` serves gRPC, `arbitration` decides which client may write, and `device`
holds the ports and the running program. `batches` treats many updates as one, and `pipeline` has
one reader and one writer per kind of entity. These are in `tables`, `profiles`, `counting`,
`metering`, `registers`, `replication`, `value_sets` and `digests`.

`schema` binds P4Info's names and ids to the program's. `refusal` has the errors of all these
modules, and `reconcile` carries state from one program to the next. `watch` wakes up for digests
and idle entries.
"""
