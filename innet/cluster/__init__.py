"""Cluster files: their schema, and the steps from the present state to the one that a file describes."""
