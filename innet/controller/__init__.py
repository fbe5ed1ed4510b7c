"""The controller: it admits workers to jobs and writes the jobs' entries to the switches.

The modules, from the top down:

* `server` serves gRPC, and `service` turns requests into calls and answers.
* `registry` holds all state under one lock, passes on every event and notifies the workers.
* `jobs` (a job's workers and terms) with `agreement`, and `slots` (slot ranges and table space of
  a switch), are the rules. They communicate with nobody.
* `store` keeps the state that outlives the controller.
* `switches` runs one thread per switch. It uses `aggregation` (a switch that runs the aggregation
  program), which uses `targets` (the kinds of switch) and `entries` (the program's table entries).
  Below them `reconcile`, `p4runtime` and `names` work for any program.
* `deploy` goes through the same layers once, without a controller, with `transcript` and
  `rehearsal`.
* `cli` has the commands.
"""
