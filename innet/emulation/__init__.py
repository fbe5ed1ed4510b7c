"""``innet emulate``: a cluster described in a file, run on one machine in Mininet.

* `topology` is the schema of the file. `plan` assigns names, ports, addresses and links. Both are
  pure.
* `namespaces` runs an emulation in namespaces of its own, and `network` builds the plan there with
  Mininet.
* `controller` starts the controller and adds the switches. `launch` runs a command on every host.
* `traffic` reads the links' counters. `report` and `plot` show them.
* `run` does all of it in order.
"""
