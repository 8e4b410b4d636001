"""``open``, ``run``, ``demo``, ``resume`` and ``watch``: a session, its runner, and one display."""

import argparse
import sys
from collections.abc import Callable, Collection
from contextlib import closing
from pathlib import Path
from typing import Any, TextIO

import msgspec

from narrowdown.engines import installed
from narrowdown.engines.consent import Consent
from narrowdown.wizard import (
    FAILURE_SEEN,
    UNTOLD,
    BadUsage,
    Exit,
    demo as demos,
    passed_variables,
    terminal,
    trust,
)
from narrowdown.wizard.cli.answers import Script, read_answers
from narrowdown.wizard.cli.flow import faults
from narrowdown.wizard.cli.follow import Follower, JsonPrompt, Prompt
from narrowdown.wizard.flow.load import Loaded, load as load_flow, shipped
from narrowdown.wizard.flow.model import Flow
from narrowdown.wizard.from_pytorch import open_model
from narrowdown.wizard.plain import Display, JsonDisplay, PlainDisplay
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.problem_options import changed_since, problem_from, say_usual
from narrowdown.wizard.runner import requests
from narrowdown.wizard.runner.client import Client
from narrowdown.wizard.runner.requests import Options, Policy
from narrowdown.wizard.schedulers import require_cluster
from narrowdown.wizard.session import folder as folders, of_system
from narrowdown.wizard.session.state import State
from narrowdown.wizard.words import count, duration, listing, visible


def open_(arguments: argparse.Namespace) -> int:
    """``narrowdown open MODEL``: a person answers."""
    with open_model(arguments, terminal.say) as named:
        return start(problem_from(named), named, person=True, usual=say_usual(named))[0]


def run(arguments: argparse.Namespace) -> int:
    """``narrowdown run MODEL``: recommended or scripted answers."""
    return expected(arguments.expect, walk_through(arguments)[0])


def walk_through(arguments: argparse.Namespace) -> tuple[int, Path]:
    """The same: how the session ended, whatever was expected, and its folder."""
    with open_model(arguments, terminal.say) as named:
        problem = problem_from(named)
        code, place = start(problem, named, person=False, usual=say_usual(named))
    if problem.score and code == Exit.FOUND and not arguments.detach:
        # What counts is measured of what was found.
        _, place = follow(place, arguments, "", person=False)
    return code, place


def follow(
    source: Path,
    arguments: argparse.Namespace,
    score: str,
    *,
    person: bool,
    script: str | None = None,
) -> tuple[int, Path]:
    """Go on from an ended session with what follows a failing case, in a new one, once all that
    runs then is admitted: the exit code, and its folder. ``script``: a file of answers. Raises
    Untrusted, Refusal."""
    from narrowdown.wizard.follow_up import begin_after

    base = folders.describe(source).problem
    consent = trust.admit(base, arguments.yes_run_scripts)
    if score:  # in place of what the session has
        scored = msgspec.structs.replace(base, score=score)
        consent = trust.admit(scored, arguments.yes_run_scripts)
    place, known = begin_after(source, score, executor=require_cluster(arguments.executor))
    said = f"{folders.name_for_command(place)} goes on from {folders.name_for_command(source)}"
    said = f"{said}; {count(known, 'measurement')} taken over."
    return go_on(place, said, arguments, consent, person=person, script=script), place


def go_on(
    place: Path,
    said: str,
    arguments: argparse.Namespace,
    consent: Consent,
    *,
    person: bool,
    script: str | None,
) -> int:
    """Say what a new session has taken over of another, and walk it. ``script``: a file of
    answers."""
    out = sys.stderr if arguments.display == "json" else sys.stdout
    print(f"narrowdown: {said}", file=out, flush=True)
    answers = read_answers(script, flow_of(place))
    return walk(place, arguments, answers, consent, person=person)


def expected(wanted: str | None, code: int) -> int:
    """The exit code under ``--expect``: 0 where it is as expected, 5 where it is not, 6 where that
    cannot be told. What is no answer to it (bad usage, a person needed, something missing, stopped)
    stays."""
    seen = (
        "fail"
        if code in FAILURE_SEEN
        else "pass"
        if code == Exit.NOT_REPRODUCED
        else ""
        if code in UNTOLD
        else None
    )
    if not wanted or seen is None:
        return code
    return (Exit.FOUND if seen == wanted else Exit.DIFFERS) if seen else Exit.UNRESOLVED


def resume(arguments: argparse.Namespace) -> int:
    """``narrowdown resume SESSION``."""
    place = folders.find(arguments.session) if arguments.session else last_session()
    if arguments.repair:
        whole = place
        place, damaged = folders.repair(place)
        arguments.pass_env = (
            arguments.pass_env
            or passed_variables.remembered(whole, folders.describe(place).problem)
            or []
        )
        terminal.say(f"working on a repaired copy in {place}")
        terminal.say(f"damaged: {listing(damaged)}")
    about = folders.describe(place)
    consent = trust.admit(about.problem, arguments.yes_run_scripts)
    before = folders.load(place)
    if before.seq:
        say_changed(about)
    person = not arguments.answers and guided(before, display_name(arguments, person=True))
    answers = read_answers(arguments.answers, flow_of(place))
    if not before.seq and any((place / "models").glob("*.onnx")):
        terminal.say(
            f"the journal of '{place}' is gone or empty, so the session begins anew; its models are still there."
        )
    return walk(place, arguments, answers, consent, person=person, before=before)


def say_changed(about: folders.Description) -> None:
    """Name what was changed of the files of a session that goes on."""
    if not (changed := changed_since(about.problem, about.created)):
        return
    names = listing([visible(Path(path).name) for path in changed])
    terminal.say(
        f"{names} {'was' if len(changed) == 1 else 'were'} changed, or written anew, since this session began. It goes on with "
        "its own copy; 'narrowdown run' with another --session, or none, begins one with what is there now."
    )


def last_session() -> Path:
    """The session in which something has happened last, which is said. Raises Refusal (exit 2)
    where there is none."""
    found = next(iter(folders.list_sessions()), None)
    if found is None:
        raise BadUsage(
            f"There is no session in {folders.home()} yet; 'narrowdown open MODEL' begins one."
        )
    state = found.problem or found.verdict or (f"at {found.node}" if found.node else "begun")
    named = visible(Path(found.model).name)
    terminal.say(
        f"the last session, {visible(found.id)} ({named}, {duration(found.age)} ago: {visible(state)})"
    )
    return found.path


def guided(state: State, name: str) -> bool:
    """Whether a person, or a program in place of one, answers from here on: in the terminal UI
    always; on a text display at a terminal, unless the answers so far were recommended or scripted
    ones; as JSON where they were not."""
    if name == "tui":
        return True
    answered = [visit.by for visit in state.route if visit.by]
    if name == "json":
        return "person" in answered
    asks = name == "plain" and sys.stdin.isatty() and not terminal.in_ci()
    return asks and (not answered or "person" in answered)


def watch(arguments: argparse.Namespace) -> int:
    """``narrowdown watch SESSION``: look, and change nothing. Ends with the runner."""
    place = folders.find(arguments.session)
    folders.describe(place)  # first: a link may stand where its flow should
    name = display_name(arguments, person=False)
    if name == "tui":
        return screens(place, arguments, watching=True)
    shown, called = display(name, flow_of(place)), folders.name_for_command(place)
    with closing(Client.attach(place, "watch", name="narrowdown watch")) as client:
        return Follower(client, shown, name=called).run(controls=False)


def start(
    problem: Problem, arguments: argparse.Namespace, *, person: bool, usual: str = ""
) -> tuple[int, Path]:
    """Make the session, or go on with the one that ``--session`` names, and walk it: the exit code,
    and its folder. ``usual``: what is said of an engine that nobody named, once nothing is
    refused."""
    display_name(arguments, person=person)  # refuses before a session exists
    place, script, consent = begin(problem, arguments, agreed)
    if usual:
        terminal.say(usual)
    return walk(place, arguments, script, consent, person=person), place


def begin(
    problem: Problem, arguments: argparse.Namespace, agree: Callable[[Problem], Consent]
) -> tuple[Path, Script, Consent]:
    """The folder of a new session, or of the one that ``--session`` names, the scripted answers,
    and what may run. ``agree``: to what stands in the PROBLEM as it was given. Raises Refusal."""
    loaded, given = checked_flow(problem.flow), problem
    if (
        loaded.flow.reference
        and problem.reference == Problem(model="").reference
        and not arguments.reference
    ):
        problem = msgspec.structs.replace(problem, reference=loaded.flow.reference)
    script = read_answers(arguments.answers, loaded.flow)
    passed_variables.refuse(problem, arguments.pass_env, require_cluster(arguments.executor))
    consent = agree(given)
    if problem is not given:  # the flow may be somebody else's
        consent = trust.admit(problem, arguments.yes_run_scripts)
    return session_folder(problem, loaded.text, arguments.session), script, consent


def agreed(problem: Problem, yes: Collection[str] = (), edited: Problem | None = None) -> Consent:
    """What the user typed may run, and is remembered, but where ``all`` is let through for once.
    ``edited``: as for ``trust.agree``.
    Where that cannot be written down, say so and go on: it is asked again later."""
    try:
        return trust.agree(problem, yes, edited)
    except trust.Unremembered as error:
        said = of_system(error, trust.trust_file())
        terminal.say(
            f"what may run could not be remembered, so resume and replay will ask for --yes-run-scripts. {said}"
        )
        return error.consent


def walk(
    place: Path,
    arguments: argparse.Namespace,
    script: Script,
    consent: Consent,
    *,
    person: bool,
    before: State | None = None,
) -> int:
    """Start the runner, or attach to the one at work, and follow it to its end; then write what is
    handed on. ``before``: what the session was, where that is known already; its probes are of no
    matter."""
    name = display_name(arguments, person=person)
    where = require_cluster(arguments.executor)
    passed = passed_variables.chosen(place, arguments.pass_env, where)
    policy: Policy = "person" if person else "script" if script.answers else "recommended"
    options = runner_options(
        arguments,
        policy=policy,
        answers=script.answers,
        settings=script.settings,
        handed=passed,
        offers=person and (name == "tui" or arguments.auto),
        detach=arguments.detach,
        consent=consent,
        first=first_requests(place, arguments, person=person),
    )
    if name == "tui" and person:
        return screens(place, arguments)
    if name == "tui":
        # The screens attach to a runner that is at work already, which must not end before they do.
        Client.start(
            place, msgspec.structs.replace(options, detach=True), name="narrowdown run"
        ).close()
        return screens(place, arguments)
    if (
        person
        and terminal.at_terminal()
        and arguments.display == "auto"
        and (excuse := terminal.why_text())
    ):
        terminal.say(excuse)
    since = (before or folders.load(place)).seq
    called = f"narrowdown {arguments.parser.prog.split()[-1]}"
    with closing(Client.open(place, options, name=called)) as client:
        if arguments.detach:
            said = f"{place.name} runs on its own: 'narrowdown watch {place}' looks at it."
            print(said, file=sys.stderr if name == "json" else sys.stdout)
            return Exit.FOUND
        flow = flow_of(place)
        shown = display(name, flow, asks=person)
        prompt = (JsonPrompt() if name == "json" else Prompt(flow)) if person else None
        follower = Follower(
            client, shown, prompt=prompt, since=since, name=folders.name_for_command(place)
        )
        code = follower.run()
    if follower.watched:
        return code  # whoever holds the session writes what is handed on
    if code == Exit.MISSING and installed.find_change():
        return code  # that was said just now, and what would write it has been changed, too
    from narrowdown.wizard.cli.finish import finish

    return finish(place, code, text=name == "plain")


def first_requests(
    place: Path, arguments: argparse.Namespace, *, person: bool
) -> tuple[dict[str, Any], ...]:
    """What the runner is asked before anything else: ``--rewind``, ``--auto``. Raises Refusal (exit
    2) where the route has not been at what ``--rewind`` names."""
    first: list[requests.Request] = []
    if arguments.rewind:
        from narrowdown.wizard.runner.control import find_anchor

        try:
            first.append(requests.Rewind(find_anchor(folders.load(place), arguments.rewind)))
        except LookupError as error:
            raise BadUsage(f"--rewind: {error.args[0]}") from None
    if person and arguments.auto and (first or not folders.load(place).end):
        first.append(requests.SetPolicy("walk"))
    return tuple(map(requests.encode, first))


def session_folder(problem: Problem, flow_text: str, chosen: str | None) -> Path:
    """A new session's folder, or the chosen one, which may hold a session of the same model, flow
    and PROBLEM."""
    if not chosen:
        return folders.create(problem, flow_text)
    place = Path(chosen).expanduser().absolute()
    if folders.reuse(place, problem, flow_text):
        say_changed(folders.describe(place))
        return place
    return folders.create(problem, flow_text, folder=place)


def checked_flow(name: str) -> Loaded:
    """The flow; a file of the user's is linted (the shipped ones are by the tests). Raises Refusal
    with file, line, column."""
    loaded = load_flow(name)
    if name in shipped():
        return loaded
    if fault := faults(loaded):
        raise BadUsage(fault)
    return loaded


def flow_of(place: Path) -> Flow:
    """The session's own flow. Raises FlowProblem."""
    return load_flow(place / folders.FLOW).flow


def runner_options(arguments: argparse.Namespace, **more: Any) -> Options:
    """What the words of a command say of its runner, and ``more``. Raises Refusal as
    ``require_cluster`` does."""
    return Options(
        jobs=arguments.jobs,
        budget=arguments.budget,
        executor=require_cluster(arguments.executor),
        retry_unresolved=arguments.retry_unresolved,
        **more,
    )


def display_name(arguments: argparse.Namespace, *, person: bool) -> str:
    """``auto``: the terminal UI for a person at a terminal, else plain text."""
    chosen = str(arguments.display)
    if chosen == "tui" and not terminal.at_terminal():
        raise BadUsage(
            "--display tui needs a terminal; --display plain asks the same questions as text."
        )
    if chosen != "auto":
        return chosen
    return "tui" if person and terminal.person_present() and terminal.draws_screens() else "plain"


def display(name: str, flow: Flow, out: TextIO | None = None, *, asks: bool = False) -> Display:
    """A text display, on stdout where ``out`` is no other; ``asks``: as of ``PlainDisplay``."""
    if name == "json":
        return JsonDisplay(out or sys.stdout)
    if name == "none":
        return Display()
    return PlainDisplay(flow, out, asks=asks)


def screens(place: Path | None, arguments: argparse.Namespace, *, watching: bool = False) -> int:
    """The terminal UI, on one session or on the list of them; then the same last words as on a text
    display."""
    from narrowdown.wizard.tui.app import run as run_terminal
    from narrowdown.wizard.tui.library import Sessions

    first = first_requests(place, arguments, person=True) if place else ()
    options = runner_options(arguments, first=first)
    library = Sessions(options, yes=arguments.yes_run_scripts, watch=watching)
    code, left = run_terminal(
        folder=place, library=library, welcome=getattr(arguments, "welcome", "")
    )
    if left is not None and not watching:
        from narrowdown.wizard.cli.finish import finish

        return finish(left, code, text=True)
    return code


def demo(arguments: argparse.Namespace) -> int:
    """``narrowdown demo [NAME]``: live in the terminal when there is one, else the same route as text with the recommended
    answers."""
    problem = demos.problem(arguments.name, folders.home().parent / "demo")
    interactive = terminal.person_present() and arguments.display in ("auto", "tui")
    if not (interactive and terminal.draws_screens()) and arguments.display in (
        "auto",
        "plain",
    ):
        terminal.show([demos.DEMOS[arguments.name].about], most=terminal.PAGE)
    arguments.welcome = demos.DEMOS[arguments.name].about
    return start(problem, arguments, person=interactive)[0]
