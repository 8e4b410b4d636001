"""``narrowdown replay SESSION``: a table recorded | now, and whether it is what was expected."""

import argparse
import sys

from narrowdown.wizard import BadUsage, passed_variables, terminal, trust
from narrowdown.wizard.problem_options import engine_under_test
from narrowdown.wizard.runner import replay as replays
from narrowdown.wizard.runner.requests import Options
from narrowdown.wizard.runner.table import OUTCOMES, UNTOLD, Compared, Replay, Result, Row
from narrowdown.wizard.schedulers import LOCAL, require_cluster
from narrowdown.wizard.session import folder as folders
from narrowdown.wizard.words import elide, visible, write_json


def replay(arguments: argparse.Namespace) -> int:
    """Exit 0 as expected, 5 not, 6 cannot tell."""
    several = len(arguments.sessions) > 1 or len(arguments.engine) > 1
    if several or arguments.python or arguments.junit:
        if arguments.dry or arguments.search or arguments.json:
            raise BadUsage(
                "Several replays go with none of --dry, --search and --json: replay one session."
            )
        from narrowdown.wizard.cli.matrix import matrix

        return matrix(arguments)
    found = _replay(arguments, _Noting() if arguments.json else _Printing())
    code = found.exit_code(arguments.expect)
    if arguments.json:
        whole = Result(found.verdict, arguments.expect, code, found.engines, found.rows)
        sys.stdout.write(write_json(whole))
        return code
    outcome = OUTCOMES.get(code, UNTOLD)
    told = outcome if outcome == found.verdict else f"{found.verdict}: {outcome}"
    print(f"{told} (--expect {arguments.expect})")
    return code


def _replay(arguments: argparse.Namespace, teller: replays.Teller) -> Replay:
    """The replay of one session that the words ask for. Raises Refusal, Untrusted."""
    place, asked = folders.find(arguments.sessions[0]), next(iter(arguments.engine), "")
    if arguments.dry and (asked or arguments.search or arguments.executor != LOCAL):
        raise BadUsage(
            "--dry runs no engine, so it goes with none of --engine, --search and --executor."
        )
    if arguments.search and arguments.expect != "same":
        raise BadUsage("--search compares routes, which are the same or not: leave --expect out.")
    where = require_cluster(arguments.executor)
    engine = engine_under_test(asked, here=where == LOCAL) if asked else ""
    if arguments.dry:
        found = replays.dry(place, keep_going=arguments.keep_going)
        teller.engines(found.engines)
        for row in found.rows:
            teller.row(row)
        return found
    consent = trust.admit(folders.describe(place).problem, arguments.yes_run_scripts, engine)
    passed = passed_variables.chosen(place, arguments.pass_env, where)
    wanted = replays.Wanted(engine, arguments.expect, arguments.keep_going)
    options = Options(jobs=arguments.jobs, executor=where, handed=passed, consent=consent)
    again = replays.search if arguments.search else replays.real
    return again(place, wanted, options=options, teller=teller)


class _Noting(replays.Teller):
    """Sentences on stderr; the table is for whoever reads JSON."""

    def note(self, said: str) -> None:
        terminal.say(said)


class _Printing(_Noting):
    """The engines, then one line of the table as soon as it is known."""

    def engines(self, compared: tuple[Compared, ...]) -> None:
        for engine in compared:
            print(f"{engine.role:18} {visible(str(engine))}", flush=True)

    def row(self, row: Row) -> None:
        where = f"{row.node}{f' #{row.visit}' if row.visit > 1 else ''}"
        recorded, now = visible(elide(row.recorded, 32)), visible(elide(row.now, 32))
        detail = f"  {visible(elide(row.detail, 240))}" if row.detail else ""
        print(
            f"{visible(where):18} {visible(row.role):14} {recorded:32} | {now:32} {row.outcome}{detail}",
            flush=True,
        )
