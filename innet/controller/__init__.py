"""The controller: it admits workers to jobs and writes the jobs' entries to the switches.

The modules, from the top down:

* `server` serves gRPC, and `service` passes requests to the `controller`, which puts the parts
  together.
* `handlers` take everything that happens: requests, events of workers and switches, and the
  passing of time.
* `state` is what they change: the `Registry` holds it under one lock. It stores a change, then
  notifies the workers and wakes the switches.
* `switches` writes what the state says to the switches, over P4Runtime. `deploy` does so once,
  without a controller.
* `jobs` has the rules of jobs, slots and trees. They communicate with nobody.
* `cli` has the commands.
"""
