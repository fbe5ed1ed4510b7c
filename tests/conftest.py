"""What all tests share."""

from hypothesis import settings

# The same examples in every run, and none that fails because the machine is busy.
settings.register_profile("innet", deadline=None, derandomize=True)
settings.load_profile("innet")
