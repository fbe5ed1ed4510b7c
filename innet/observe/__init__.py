"""Observation of a running cluster: ``innet doctor`` finds problems, ``innet top`` shows rates.

Only the command line imports this package. It reads from the controller as any client may, and changes
nothing.
"""
