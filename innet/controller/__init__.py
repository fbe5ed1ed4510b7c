"""The controller: it admits workers to jobs and writes the jobs' entries to the switches.

The modules, from the top down:

* `server` serves gRPC, and `service` passes requests to the `controller`, which puts the parts
  together.
* `switch_requests`, `job_requests`, `worker_events`, `switch_events` and `clock` take everything
  that happens. They pass it on to the `registry`, which holds all state under one lock. The
  `registry` stores a change, then notifies the workers and wakes the switches.
* `jobs` has the rules of one job, with `roster` (its workers), `job_switches` (its switches) and
  `terms` (how its workers agree). `slots` and `slot_queue` have those for slots. The rules take and
  return the plain values of `events` and `records`. They communicate with nobody.
* `messages` makes protobuf messages of these values. `store` keeps the state that outlives the
  controller.
* `switches` runs one thread per switch. It uses `aggregation` (a switch that runs the aggregation
  program), which uses `targets` (the kinds of switch) and `entries` (the program's table entries).
  Below them `reconcile`, `p4runtime` and `names` work for any program.
* `deploy` goes through the same layers once, without a controller, with `transcript` and
  `rehearsal`.
* `cli` has the commands.
"""
