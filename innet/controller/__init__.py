"""The controller: who is in which job, and what the switches must know about it.

Top down: `server` (gRPC) -> `service` (requests in, answers out) -> `registry` (what happens, under
one lock, and who is told). Under the registry there are the rules, which talk to nobody: `jobs` (a
job's workers and epochs) with `agreement`, and `slots` (what of a switch is whose). Beside them are
`store` (what outlives the controller) and `switches` (one thread for each) -> `aggregation` (a switch
that runs the aggregation program) -> `targets` (what kind of switch it is), `entries` (what stands in
its tables) -> `reconcile`, `p4runtime`, `names` (any program's entries). `deploy` goes that way once,
without a controller, with `transcript` and `rehearsal`. `client` is what everybody else talks through.
"""
