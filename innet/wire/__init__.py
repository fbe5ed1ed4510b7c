"""The packet format, said once for Python; everything may import it, and it imports nothing of innet.

`layout` holds the fields and the constants, `records` the numpy view that the host agent works on,
`frames` the addresses in front, and `capture` the Scapy layer that people read packets with.
"""
