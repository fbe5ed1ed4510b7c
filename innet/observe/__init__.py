"""Seeing what goes on: what holds a job up (``innet doctor``), and how it runs (``innet top``).

Only the command imports it. It asks the controller, as anybody may, and changes nothing.
"""
