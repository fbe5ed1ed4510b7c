"""Processes on this machine: their supervision, free ports, worker processes, and a whole rack."""
