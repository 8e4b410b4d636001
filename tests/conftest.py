"""For all tests: Hypothesis measures no time. A machine that is busy with other work is no failure of the code."""

from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
