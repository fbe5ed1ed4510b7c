"""Processes of one machine: supervision, racks on loopback, and free ports."""
