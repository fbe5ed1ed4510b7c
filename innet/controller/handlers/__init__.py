"""The handlers of everything that happens to a controller.

`switch_requests`, `job_requests` and `quota_requests` serve clients, `worker_events` serves the
workers' streams, `switch_events` takes reports and packets from switches, and `clock` passes the
time.
"""
