"""What the steps of a problem took the last time that it was looked into on this machine: a file
below the state home.

Nothing that one session knows tells as much: 18 of 22 steps of second sessions on CPU engines came
within a factor of two of what the same step had taken in the first, where the session itself could
tell 5 (docs/estimates.md). It is a cache: what cannot be read or written is not known, and no
answer rests on it.
"""

import contextlib
import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from narrowdown.engines.search.cost import settle_between
from narrowdown.engines.store import decoding, regular
from narrowdown.engines.store.content import turn, write_own
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.runner.estimate import LIKE_LAST_TIME, Estimate
from narrowdown.wizard.session.state import Known, State

PROBLEMS, PLACES = (
    200,
    64,
)  # that are kept, and of each so many steps: some 100 KiB; those that were met last stay
MOST = 1 << 20  # bytes that are read
AGAIN = "-again"

Kept = dict[
    str, dict[str, float]
]  # problem -> step -> seconds, the problem that was met last at the end


def find_file() -> Path:
    """Where the seconds lie: below the state home, as the file of what was agreed to does."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "narrowdown" / "seconds.json"


def name_problem(problem: Problem, fingerprints: Mapping[str, str]) -> str:
    """A digest of all that decides what is asked, of the files' content and of the engines as they
    are; "" where the model's content is not known. Where the files lie does not count.

    ``fingerprints``: of the step's engines, by spec."""
    if problem.model not in problem.digests:
        return ""
    inputs = tuple(problem.digests.get(path, path) for path in problem.inputs)
    model = problem.digests[problem.model]
    same = msgspec.structs.replace(problem, model=model, inputs=inputs, folder="", digests={})
    told = msgspec.json.encode(
        [same, sorted(problem.digests.values()), fingerprints], order="deterministic"
    )
    return hashlib.sha256(told).hexdigest()[:24]


def name_place(node: str, visit: int) -> str:
    """A step of a flow, by its node and how often that was entered."""
    return f"{node} {visit}"


def is_straight(state: State) -> bool:
    """Whether the session has run every step once, from its beginning: after a rewind or a resume
    much is known already."""
    return state.runs == sum(bool(v.step) for v in state.route)


def settle_took(answers: Iterable[Known], since: int, passed: float) -> float:
    """Seconds that a step took. ``answers``: to all that it asked; those that were known before the
    event ``since`` cost nothing. ``passed``: on the clock, from its start to its end. Of several at
    a time each has its own seconds, the clock runs on while nothing may run, and what was asked
    ahead of the start was not waited for: it took no less than the longest."""
    each = [answer.seconds for answer in answers if answer.seq > since]
    return max(max(each, default=0.0), min(sum(each), passed))


class LastTime:
    """The steps of one session, and what they took the last time. Reads and writes a small file:
    not for the loop."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._met: dict[
            str, bool
        ] = {}  # digest of a problem -> whether it was met before this session

    def tell(
        self, made: Estimate, fingerprints: Mapping[str, str], timed: bool, place: str
    ) -> Estimate:
        """The estimate as ``tell_last_time`` has it. ``timed``: the engine times kernels and keeps
        what it timed; ``place``: as ``name_place`` names it."""
        return tell_last_time(made, read_seconds(self._name(fingerprints, timed), place))

    def keep(
        self, fingerprints: Mapping[str, str], timed: bool, place: str, seconds: float
    ) -> None:
        """Keep what the step took; told before, as ``tell`` is what finds out whether the problem
        was met."""
        keep_seconds(self._name(fingerprints, timed), place, seconds)

    def _name(self, fingerprints: Mapping[str, str], timed: bool) -> str:
        """The problem's digest. A first session pays for timings that all later ones find (a first
        build of 109 s took 8), so what it took tells of none of these: they are a problem of their
        own."""
        name = name_problem(self._problem, fingerprints)
        if not (name and timed):
            return name
        if name not in self._met:
            self._met[name] = not {name, name + AGAIN}.isdisjoint(_read())
        return name + AGAIN if self._met[name] else name


def read_seconds(problem: str, place: str) -> float:
    """What the step took; -1 where nobody knows."""
    return _read().get(problem, {}).get(place, -1.0) if problem else -1.0


def keep_seconds(problem: str, place: str, seconds: float) -> None:
    """Keep what the step took. Of several programs that write at once each adds its own."""
    if not problem or seconds <= 0:
        return
    with contextlib.suppress(OSError, RuntimeError), turn(path := find_file()):
        kept = _read()
        places = {**kept.pop(problem, {}), place: round(seconds, 3)}
        if len(places) > PLACES:
            return
        kept[problem] = places
        write_own(path, msgspec.json.encode(dict(list(kept.items())[-PROBLEMS:])))


def _read() -> Kept:
    """Empty where there is none or it is none of ours: a link, another's, one that others may
    write."""
    try:
        return decoding.decode(regular.read_own(find_file(), MOST, links=False), Kept)
    except (ValueError, RuntimeError):  # the latter where nobody knows where the home is
        return {}


def tell_last_time(made: Estimate, seconds: float) -> Estimate:
    """The estimate, with what the step took the last time where the session itself knows no number.
    ``seconds``: -1 where that is not known."""
    cost = made.cost
    if seconds <= 0 or made.plan is None or not cost.open:
        return made
    least, most = (round(times * seconds, 3) for times in LIKE_LAST_TIME)
    told = settle_between(seconds, least, most)
    cost = msgspec.structs.replace(cost, seconds=told, least=least, most=most, unit=-1.0)
    return msgspec.structs.replace(made, cost=cost, last=seconds)
