"""``innet emulate``: a cluster described in a file, run on one machine in Mininet.

`topology` says what a file may contain, `plan` places it: names, ports, addresses, links. Both are pure.
`enclosure` gives an emulation a corner of the kernel of its own, `network` builds the plan there with
Mininet, `control` starts the controller and tells it of the switches, `launch` runs a command on every
host. `meter` reads the links' counters, `report` and `plot` show them, and `run` is all of it in order.
"""
