"""A parameter server in the place of a parent switch: ``innet pbox rack-server``.

It runs the same program as any parent switch, with innet-switch, so the racks' switches send their
sums up to it as usual. Behind the program it keeps parameters. A chunk may ask for parameters: then
its result is the parameters after the optimizer's step with the sum, instead of the sum itself. See
docs/pbox.md, "Above racks".
"""
