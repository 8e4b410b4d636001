"""What somebody on this machine has agreed to run or load for a session: plain data, made by
``wizard.trust`` alone.

Whoever starts a runner, a pool or a host hands one over; without one nothing of a user's is run or
loaded. Workers open what it names and nothing else, and hold what they open against its digests
(``engines.data.held``).
"""

import msgspec

from narrowdown.engines import options
from narrowdown.engines.probe import AnyProbe, Check, LoadInputs, Measure, engine_specs
from narrowdown.engines.sources import postprocess_script, score_script, scripts


class Consent(msgspec.Struct, frozen=True, omit_defaults=True):
    """``files``: absolute canonical path -> sha256 of all that may be opened to be run or loaded:
    scripts with what they import, what a command names, libraries, files that a native parser
    reads. ``inputs``: the sources that are data loader scripts. ``postprocess``, ``score``: of a
    script. ``check``: the command. ``commands``: those that engines start, each with the files
    among ``files`` that it names or imports, and settings of engines that are no harmless ones.
    ``folder``: the only one in which any of these runs, but for commands that ``folders`` has
    another one for, as who typed them stood there."""

    files: dict[str, str] = {}
    inputs: tuple[str, ...] = ()
    postprocess: tuple[str, ...] = ()
    score: str = ""
    check: str = ""
    check_files: tuple[str, ...] = ()  # those among ``files`` that the check names or imports
    commands: dict[str, tuple[str, ...]] = {}
    folder: str = ""
    folders: dict[str, str] = {}

    def strange(self, probe: AnyProbe) -> str:
        """What the probe would run or load that is not agreed to, as a sentence; "" where there is
        nothing of the kind."""
        strange = ""
        folder = getattr(probe, "folder", "")
        if isinstance(probe, Check) and probe.command != self.check:
            strange = f"the check command {probe.command[:200]!a}"
        elif isinstance(probe, LoadInputs) and (
            more := [s for s in probe.sources if scripts(s) and s not in self.inputs]
        ):
            strange = f"the inputs {more[0][:200]!a}"
        elif (
            isinstance(probe, Measure)
            and postprocess_script(probe.postprocess)
            and probe.postprocess != self.postprocess
        ):
            strange = f"the postprocess {', '.join(probe.postprocess)[:200]!a}"
        elif isinstance(probe, Measure) and score_script(probe.score) and probe.score != self.score:
            strange = f"the score {probe.score[:200]!a}"
        elif folder != self.folder and self._runs_in_folder(probe):
            strange = f"something in the folder {folder[:200]!a}"
        elif unasked := [
            (kind, command) for kind, command in list_started(probe) if command not in self.commands
        ]:
            strange = f"the {unasked[0][0]} {unasked[0][1][:200]!a}"
        elif unnamed := [
            (kind, path) for kind, path in list_loaded(probe) if path not in self.files
        ]:
            strange = f"the {unnamed[0][0]} {unnamed[0][1][:200]!a}"
        return (
            f"The session would run {strange}, which nobody agreed to; nothing was run."
            if strange
            else ""
        )

    def runs(self, probe: AnyProbe) -> bool:
        """Whether the probe runs a command or a script of the user's."""
        return self._runs_in_folder(probe) or (
            isinstance(probe, Measure) and bool(score_script(probe.score))
        )

    def _runs_in_folder(self, probe: AnyProbe) -> bool:
        """Whether one of them runs in the user's folder; what scores runs in its own."""
        return (
            isinstance(probe, Check)
            or (isinstance(probe, LoadInputs) and any(map(scripts, probe.sources)))
            or (isinstance(probe, Measure) and bool(postprocess_script(probe.postprocess)))
        )

    def of(self, probe: AnyProbe) -> "Consent":
        """What has to travel with this probe: all of it, or nothing where it runs and loads
        nothing."""
        return self if self.runs(probe) or list_loaded(probe) or list_started(probe) else NOTHING


def list_loaded(probe: AnyProbe) -> tuple[tuple[str, str], ...]:
    """(kind, path) of each file that the probe's engines would load."""
    return tuple(found for spec in engine_specs(probe) for found in options.loaded(spec))


def list_started(probe: AnyProbe) -> tuple[tuple[str, str], ...]:
    """(kind, words) of each program that the probe's engines would start, and of each setting that
    may do more than that."""
    return tuple(found for spec in engine_specs(probe) for found in options.started(spec))


NOTHING = Consent()
