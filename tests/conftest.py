"""For all tests: Hypothesis measures no time, as a machine that is busy with other work is no failure of the code; and Ctrl-C
reaches the programs that are tested, also where a shell has begun the tests in the background and told them to ignore it."""

import signal

from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
