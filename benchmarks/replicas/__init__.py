"""Replicas of trainings with torchft on this machine, for benchmarks and tests.

torchft may be installed in an environment of its own. `start` runs in innet's environment, `program`
and `training` in torchft's.
"""
