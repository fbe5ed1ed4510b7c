"""The folders of the repository that tests use."""

from pathlib import Path

SUPPORT = Path(__file__).parent
"""This folder: helpers, programs for workers, and P4 programs."""

ROOT = SUPPORT.parents[1]
