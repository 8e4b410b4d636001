"""Commands that look at sessions and change nothing: the list, the route, the report, the
bundle."""

import argparse
import sys
from pathlib import Path

import msgspec

from narrowdown.engines.consent import NOTHING
from narrowdown.wizard import BadUsage, Exit, Missing, terminal, trust
from narrowdown.wizard.bundle import export as bundles
from narrowdown.wizard.cli.flow import write
from narrowdown.wizard.report import read as readings
from narrowdown.wizard.report.canonical import canonical
from narrowdown.wizard.report.document import to_json
from narrowdown.wizard.report.html import to_html
from narrowdown.wizard.report.markdown import to_markdown
from narrowdown.wizard.report.portable import handed_on
from narrowdown.wizard.report.summary import summary
from narrowdown.wizard.session import folder
from narrowdown.wizard.session.naming import shared_names, telling_name, titles
from narrowdown.wizard.standing import group_families, stand
from narrowdown.wizard.words import count, duration, elide, visible, write_json


def home(arguments: argparse.Namespace) -> int:
    """``narrowdown`` alone: the sessions screen, or the list where there is no terminal."""
    if terminal.person_present() and terminal.draws_screens():
        from narrowdown.wizard.cli.run import screens

        return screens(None, arguments)
    if terminal.at_terminal():
        terminal.say(terminal.why_text())
    return sessions(arguments)


def sessions(arguments: argparse.Namespace) -> int:
    """``narrowdown sessions``."""
    if sentence := folder.home_fault():
        raise Missing(sentence)
    found = [stand(entry) for entry in folder.list_sessions()]
    if arguments.json:
        # The bytes of a path that are not UTF-8 are escaped: JSON cannot hold them.
        rows = [
            {
                name: value.encode(errors="backslashreplace").decode()
                if isinstance(value, str)
                else value
                for name, value in msgspec.to_builtins(s, enc_hook=str).items()
            }
            for s in found
        ]
        sys.stdout.write(write_json(rows))
        return Exit.FOUND
    if not found:
        print(
            f"There is no session in {folder.home()} yet. 'narrowdown demo' makes one; 'narrowdown open MODEL' begins your own."
        )
        return Exit.FOUND
    shared = shared_names(s.model for s in found)
    for s, depth in group_families(found):
        reached = s.verdict.replace("-", " ") if s.end else s.verdict
        at = s.problem or reached or (f"at '{titles().get(s.node, s.node)}'" if s.node else "begun")
        held = ", open in another window" if s.holder else ""
        name, engine = (
            elide(visible(said), 32) for said in (telling_name(s.model, shared), s.engine)
        )
        print(
            f"{'  ' * depth}{visible(s.id):8} {name:32} {engine:32} {duration(s.age)} ago  {s.state}{held}  "
            f"{visible(elide(at, 100))}"
        )
    return Exit.FOUND


def show(arguments: argparse.Namespace) -> int:
    """``narrowdown show SESSION``."""
    reading = read(arguments.session)
    if arguments.canonical:
        text = canonical(reading.state, reading.flow)
        if arguments.json:
            text = write_json(text.splitlines())
        sys.stdout.write(text)
        return Exit.FOUND
    report = reading.report()
    if arguments.json:
        print(to_json(report), end="")
        return Exit.FOUND
    said = (report.session, report.model, report.engine, report.reference)
    terminal.show(["session {}  {}  {} against {}".format(*map(visible, said))])
    for position, stop in enumerate(report.route, 1):
        spent = f"{duration(stop.seconds):>10} {count(stop.probes, 'probe'):>10}"
        ended = "" if stop.state in ("", "finished") else f"  {stop.state}"
        node, text, by = map(visible, (stop.node, stop.text, stop.by))
        print(f"{position:3}  {node:16} {text:48} {by:12} {spent}{visible(ended)}")
        if stop.message:
            terminal.show([f"       {visible(stop.message)}"])
    terminal.show(map(visible, summary(report)))
    return Exit.FOUND


def report(arguments: argparse.Namespace) -> int:
    """``narrowdown report SESSION``."""
    forms = ("html", "md", "json")
    suffix = Path(arguments.output).suffix.lower().lstrip(".") if arguments.output else ""
    form = arguments.format or {"htm": "html", "markdown": "md"}.get(suffix, suffix)
    if form and form not in forms:
        raise BadUsage(
            f"'{arguments.output}' does not say which form; add --format html, md or json."
        )
    reading = read(arguments.session)
    # A page is handed on, to an issue or a colleague; JSON is for programs on this machine.
    told = reading.report() if form == "json" else handed_on(reading)
    text = (
        to_json(told) if form == "json" else to_html(told) if form == "html" else to_markdown(told)
    )
    write(text, arguments.output)
    if arguments.output not in (None, "-"):
        terminal.say(f"The report is {Path(arguments.output).expanduser()}")
    return Exit.FOUND


def export(arguments: argparse.Namespace) -> int:
    """``narrowdown export SESSION -o DIR|FILE.zip``. Only ``--weights random`` runs anything of the
    session."""
    if not arguments.output:
        raise BadUsage("What is to be written? -o DIR or -o FILE.zip writes the bundle.")
    reading, consent = read(arguments.session), NOTHING
    said: list[str] = []
    if arguments.weights == "random":
        consent = trust.admit_session(reading.folder, arguments.yes_run_scripts)
    target = Path(arguments.output).expanduser()
    made = bundles.export(reading, target, arguments.weights, consent, tell=said.append)
    print(made)
    for sentence in said:
        print(f"  {sentence}")
    return Exit.FOUND


def read(name: str) -> readings.Reading:
    """The session's Reading. Raises SessionProblem, FlowProblem."""
    return readings.read(folder.find(name))
