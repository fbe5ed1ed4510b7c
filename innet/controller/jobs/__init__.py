"""The rules of jobs, of slots and of trees. They communicate with nobody, and know no messages.

`job` has the rules of one job, with `roster` (its workers), `job_switches` (its switches) and
`terms` (how its workers agree). `slots` and `slot_queue` have the rules for slots, `quotas` those for
the owners of jobs, and `trees` those for several switches. All of them take and return the plain
values of `events` and `records`.
"""
