"""``narrowdown sessions rm|prune|rename``: sessions that are not needed any more, and a name that
says more than five letters."""

import argparse
from pathlib import Path

from narrowdown.wizard import BadUsage, Exit, Missing, Refusal, passed_variables, terminal
from narrowdown.wizard.session import SessionProblem, folder as folders, lock, of_system, removal
from narrowdown.wizard.session.folder import Summary
from narrowdown.wizard.words import count, duration, size, visible


def rm(arguments: argparse.Namespace) -> int:
    """Remove the named sessions, all or none: each must be there, and at rest, before the first one
    goes."""
    places = list(dict.fromkeys(folders.find(name) for name in arguments.sessions))
    for place in places:
        if lock.holder(place):
            raise Missing(
                f"{_called(place)} is open in another window; stop it there first. Nothing was removed."
            )
    return _remove([folders.summary(place) for place in places], yes=arguments.yes)


def prune(arguments: argparse.Namespace) -> int:
    """Remove sessions that nothing has happened in for long. What is being worked on, or cannot be
    read, stays."""
    old: list[Summary] = []
    kept: list[Summary] = []
    for position, found in enumerate(folders.list_sessions()):
        if position < arguments.keep or found.age < arguments.older_than:
            continue
        (kept if found.holder or found.problem else old).append(found)
    for found in kept:
        why = (
            "is open in another window"
            if found.holder
            else "cannot be read ('sessions rm' removes it)"
        )
        terminal.say(f"{visible(found.id)} {why}, so it stays.")
    if not old:
        print(
            f"No session in {folders.home()} is older than {duration(arguments.older_than)}; nothing was removed."
        )
        return Exit.FOUND
    return _remove(old, yes=arguments.yes)


def rename(arguments: argparse.Namespace) -> int:
    """Give a session another name."""
    place = folders.find(arguments.session)
    if fault := removal.name_fault(place, arguments.new):
        raise BadUsage(fault)
    try:
        renamed = passed_variables.rename(place, arguments.new)
    except OSError as problem:
        raise Missing(of_system(problem, place)) from None
    print(f"{place.name} is now {folders.name_for_command(renamed)}: {renamed}")
    return Exit.FOUND


def _remove(found: list[Summary], *, yes: bool) -> int:
    """Say what would go, ask, and remove it. Raises Refusal (exit 3) where nobody can be asked."""
    whole = 0
    for s in found:
        whole += (weight := removal.weight(s.path))
        state = s.problem or s.verdict or "begun"
        print(
            f"{visible(s.id):8} {visible(Path(s.model).name):32} {duration(s.age)} ago  {size(weight)}  {visible(state[:80])}"
        )
    if not yes:
        asked = f"Remove {count(len(found), 'session')}, {size(whole)}?"
        if not terminal.person_present():
            raise Refusal(
                Exit.NEEDS_PERSON,
                f"{asked} Nobody is here to say so: add --yes. Nothing was removed.",
            )
        if input(f"{asked} There is no way back. [y/N] ").strip().lower() not in ("y", "yes"):
            print("Nothing was removed.")
            return Exit.FOUND
    for done, s in enumerate(found):
        try:
            removal.remove(s.path)
        except (SessionProblem, OSError) as problem:
            why = of_system(problem, s.path) if isinstance(problem, OSError) else problem
            raise Missing(
                f"{_called(s.path)} could not be removed: {why} {done} of {len(found)} went before it."
            ) from None
    print(f"{count(len(found), 'session')} removed, {size(whole)}.")
    return Exit.FOUND


def _called(place: Path) -> str:
    return f"The session {folders.name_for_command(place)}"
