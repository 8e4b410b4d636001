"""What somebody on this machine has agreed to run or load for a session: plain data, made by
``wizard.trust`` alone.

Whoever starts a runner, a pool or a host hands one over; without one nothing of a user's is run or
loaded. Workers open what it names and nothing else, and hold what they open against its digests
(``engines.data.held``).
"""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from narrowdown.engines import options
from narrowdown.engines.probe import AnyProbe, Check, LoadInputs, Measure, engine_specs
from narrowdown.engines.sources import postprocess_script, score_script, scripts

LOADER, POSTPROCESS, SCORE, CHECK = (
    "data loader script",
    "postprocess script",
    "score script",
    "check command",
)


class Asked(NamedTuple):
    """What a probe would run or load. ``kind``, ``name``: as for a ``Permit``; ``folder``: the one
    that it would run in; None where it runs where it was agreed to."""

    kind: str
    name: str
    folder: str | None = None


class Permit(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that may run or be loaded. ``name``: its source, command, setting or path, as the
    PROBLEM has it. ``folder``: the only one that it runs in. ``files``: absolute canonical path ->
    sha256 of all that is opened for it: a script with what it imports, what a command names, a
    library, a file that a native parser reads."""

    kind: str
    name: str
    folder: str = ""
    files: dict[str, str] = {}


class Consent(msgspec.Struct, frozen=True, omit_defaults=True):
    """``variables``: names of those that the user's programs get beside the usual ones."""

    permits: tuple[Permit, ...] = ()
    variables: tuple[str, ...] = ()

    @property
    def files(self) -> dict[str, str]:
        """All that may be opened, with its digests."""
        return {path: digest for permit in self.permits for path, digest in permit.files.items()}

    def handing(self, variables: tuple[str, ...]) -> "Consent":
        """The same with these variables."""
        return msgspec.structs.replace(self, variables=variables)

    def find(self, asked: Asked) -> Permit | None:
        """What allows this: of several the last, which was typed in place of the recorded one."""
        for permit in reversed(self.permits):
            if (permit.kind, permit.name) == asked[:2] and asked.folder in (None, permit.folder):
                return permit
        return None

    def strange(self, probe: AnyProbe) -> str:
        """What the probe would run or load that is not agreed to, as a sentence; "" where there is
        nothing of the kind."""
        for asked in list_asked(probe):
            if self.find(asked) is None:
                where = f" in the folder {asked.folder[:200]!a}" if asked.folder else ""
                what = f"the {asked.kind} {asked.name[:200]!a}{where}"
                return f"The session would run {what}, which nobody agreed to; nothing was run."
        return ""

    def of(self, probe: AnyProbe) -> "Consent":
        """What has to travel with this probe: all of it, or nothing where it runs and loads
        nothing."""
        return self if any(True for _ in list_asked(probe)) else NOTHING


def list_asked(probe: AnyProbe) -> Iterator[Asked]:
    """All that the probe would run or load."""
    folder = getattr(probe, "folder", "")
    if isinstance(probe, Check):
        yield Asked(CHECK, probe.command, folder)
    if isinstance(probe, LoadInputs):
        yield from (Asked(LOADER, source, folder) for source in probe.sources if scripts(source))
    if isinstance(probe, Measure) and postprocess_script(probe.postprocess):
        yield Asked(POSTPROCESS, ", ".join(probe.postprocess), folder)
    if isinstance(probe, Measure) and score_script(probe.score):
        yield Asked(SCORE, probe.score)
    for spec in filter(None, (*engine_specs(probe), getattr(probe, "program", ""))):
        for told in (options.commands(spec), options.settings(spec), options.loaded(spec)):
            yield from (Asked(*each) for each in told)


NOTHING = Consent()
