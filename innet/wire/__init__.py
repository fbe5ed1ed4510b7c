"""The packet format for Python.

`layout` holds the fields and the constants, and `records` the numpy view that the host agent works
on. `constants` passes the format on to C. `frames` holds the headers in front, and `capture` the
Scapy layer that people read packets with.
"""
