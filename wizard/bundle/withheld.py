"""A bundle whose weights may not be shared: random ones in their place, and whether the case fails
with these."""

import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple

import msgspec

from narrowdown.engines.checker import private_copies as checkfiles
from narrowdown.engines.checker.command import CheckResult, run_line
from narrowdown.engines.consent import CHECK, Consent
from narrowdown.engines.data.held import (
    NotAgreed,
    copy,
    digest,
    forget,
    link_others,
    permit,
    under,
)
from narrowdown.engines.findings import Culprit
from narrowdown.engines.options import (
    options_with,
    split_paths,
    with_libraries,
)
from narrowdown.engines.spec import parse
from narrowdown.engines.store.scratch import scratch
from narrowdown.wizard.bundle.check_script import Asked, script
from narrowdown.wizard.machine_room import ask
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.session import AGREEING, SessionProblem

Weights = Literal["keep", "random", "none"]
WITHHELD = "weights.txt"  # says in the bundle what became of the failure
NO_WEIGHTS = "The failing model of this case holds no weights: nothing had to be withheld, and it fails as it is."


def replace_weights(
    cases: Sequence[Path], weights: Weights, problem: Problem, consent: Consent
) -> dict[Path, int]:
    """Take the weights out of the models in these folders; folder -> how many its models had. For
    ``random`` the reference computes the expected values anew, held to ``consent``. Raises
    MachineProblem."""
    if not cases:
        return {}
    words = (msgspec.json.encode(consent).decode(), weights, problem.reference)
    counts = ask("narrowdown.engines.workers.withheld", *words, *map(str, cases)).split()
    return dict(zip(cases, map(int, counts), strict=True))


class Trial(NamedTuple):
    """What a case's own check is run with: its text ("": as it lies there), the folder that it runs
    in (None: the case's own), what it reads there, and the names of further variables that it
    gets."""

    text: str = ""
    folder: Path | None = None
    laid: checkfiles.Laid = checkfiles.Laid("")
    handed: tuple[str, ...] = ()

    def run(
        self,
        python: Sequence[str],
        case: Path,
        timeout: float,
        more: Mapping[str, str] = MappingProxyType({}),
    ) -> CheckResult:
        """Run the check.py in ``case`` as any checker is run (``engines.checker``), by this
        interpreter with its flags. Raises NotAgreed where what it reads in place is not, or no
        longer, what was agreed to."""
        checkfiles.check_unchanged(self.laid)
        folder = self.folder if self.folder and self.folder.is_dir() else case
        done = run_line(
            [*python, str(case.absolute() / "check.py")],
            folder,
            timeout,
            self.handed,
            "check",
            more,
        )
        checkfiles.check_unchanged(self.laid)
        return done

    def clear(self) -> None:
        """Remove the private copies that lie outside of its folders."""
        forget()
        for folder in self.laid.private:
            shutil.rmtree(folder, ignore_errors=True)


def withheld(
    place: Path, weights: Weights, held: Callable[[Path], Trial] = lambda _: Trial()
) -> str:
    """What a case is worth without its weights, in a sentence; its own check is run for it, in a
    copy of the case. ``held``: makes the trial, with private copies of what was agreed to below the
    folder that it is given. Raises SessionProblem where what the check runs was not agreed to."""
    if weights == "none":
        return "The weights were left out: whoever has them can put them back; nobody else can run this case."
    with scratch("narrowdown-trial-") as folder:
        case = folder / "case"
        shutil.copytree(place, case)
        trial = Trial()
        try:
            trial = held(folder)
            if trial.text:
                (case / "check.py").write_text(trial.text, encoding="utf-8")
            done = trial.run((sys.executable, "-P"), case, 600.0)
        except NotAgreed as problem:
            raise SessionProblem(f"{problem} {AGREEING}") from None
        finally:
            trial.clear()
    if done.status == "exited" and done.returncode == 1:
        return "The weights are random ones of the same mean, spread and extremes; the failure survives that."
    if done.status == "exited" and done.returncode == 0:
        return (
            "The weights are random ones of the same mean, spread and extremes, and with them the failure is GONE: this case "
            "does not show it. It depends on the true weights."
        )
    why = (done.message or done.stdout.strip() or done.stderr.strip()).splitlines()
    return f"The weights are random ones; whether the failure survives that could not be told here ({why[-1] if why else '?'})."


def held_check(
    culprit: Culprit, asked: Asked, problem: Problem, consent: Consent
) -> Callable[[Path], Trial]:
    """The case's check as it is run where the session is: with private copies of its libraries, and
    of what its check command names, in the user's folder. Called, it raises NotAgreed."""

    def make(place: Path) -> Trial:
        engine, command = parse(culprit.case.engine or problem.engine), problem.check
        laid, folder = checkfiles.Laid(command), Path(problem.folder) if problem.folder else None
        user = place / "user"
        user.mkdir()
        with under(consent):
            for option in options_with(engine.name, "file", "library") if not command else ():
                if option.type == "library" and (paths := engine.get(option.name)):
                    engine = engine.with_option(
                        option.name, "+".join(str(copy(path)) for path in split_paths(paths))
                    )
                elif path := engine.get(option.name):
                    digest(path)
            for option in options_with(engine.name, "list") if not command else ():
                if pairs := engine.get(option.name):
                    placed = with_libraries(split_paths(pairs), lambda path: str(copy(path)))
                    engine = engine.with_option(option.name, "+".join(placed))
            for option in options_with(engine.name, "command") if not command else ():
                if words := engine.get(option.name):
                    each = checkfiles.lay_out(permit(option.what, words), user, (), place)
                    engine = engine.with_option(option.name, each.command)
                    laid = laid._replace(
                        in_place={**laid.in_place, **each.in_place},
                        private=(*laid.private, *each.private),
                    )
            if command:
                laid = checkfiles.lay_out(permit(CHECK, command, problem.folder), user, (), place)
            if not command and not options_with(engine.name, "command"):
                folder = None  # nothing of the user's runs there
            elif folder and any(user.iterdir()) and not laid.in_place:
                link_others(folder, user)
                folder = user
        own = msgspec.structs.replace(asked, engine=str(engine), check=laid.command, needs=())
        return Trial(script(culprit, own), folder, laid, consent.variables)

    return make
