"""A parameter server in the place of a parent switch: ``innet pbox parent``.

Racks' switches send their sums up to it as to any parent, for it runs the same program with innet-switch.
Behind the program it keeps parameters: results of chunks that ask for it leave as parameters, updated by
the optimizer with the sum, instead of the sum. See docs/pbox.md, "Above racks".
"""
