"""``step --artifacts``: what the checks or builds left, sorted by their verdicts into folders as
Polygraphy names them."""

import shutil
import time
from collections.abc import Iterable
from pathlib import Path, PurePath
from typing import Any

from narrowdown.engines.store.content import Store, atomic

REPLAY = "replay.json"  # as Polygraphy's guide calls it
FOLDERS = {"pass": "good", "fail": "bad", "unresolved": "unresolved"}


def sort(
    rows: Iterable[dict[str, Any]],
    wanted: Iterable[str],
    store: Store,
    folder: Path,
    began: float,
    *,
    builds: bool = False,
) -> list[str]:
    """Copy every artifact to
    ``folder/{good,bad,unresolved}/<stem>_<date>_<time>_N<iteration><ending>``.

    ``rows``: the step's table of iterations. ``began``: when the session was made, seconds since
    the epoch, so that sorting again makes the same names. ``builds``: they are of an engine's
    builds, of no check of the user's. Returns sentences on what could not be sorted. Raises
    OSError.
    """
    stamp = time.strftime("%m-%d-%y_%H-%M-%S", time.localtime(began))
    problems: list[str] = []
    missing: dict[str, int] = {}
    for row in rows:
        for name in wanted:
            digest = row["artifacts"].get(name)
            if digest is None:
                missing[name] = missing.get(name, 0) + 1
                continue
            path = PurePath(name)
            target = (
                folder
                / FOLDERS[row["verdict"]]
                / f"{path.stem}_{stamp}_N{row['iteration']}{path.suffix}"
            )
            source = store.path(digest)
            if target.exists():
                if target.read_bytes() != source.read_bytes():
                    problems.append(
                        f"'{target}' is there already with other content; it was left as it is."
                    )
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            with atomic(target) as temporary:
                shutil.copyfile(source, temporary)
    for name, count in missing.items():
        times = "once" if count == 1 else f"{count} times"
        if builds and name == REPLAY:
            problems.append(
                f"No '{name}' was made {times}: a tactic replay holds what an algorithm selector chose; this engine has none. "
                "'narrowdown step tactics' compares its choices, which the session keeps."
            )
        else:
            problems.append(
                f"The artifact '{name}' was not there {times}: was it meant to be made?"
            )
    return problems


def tally(rows: Iterable[dict[str, Any]]) -> str:
    """How the iterations ended, in the words that scripts around Polygraphy look for."""
    verdicts = [row["verdict"] for row in rows]
    total, passed, unresolved = len(verdicts), verdicts.count("pass"), verdicts.count("unresolved")
    rate = 100 * passed / total if total else 0.0
    beside = f" | Unresolved: {unresolved}" if unresolved else ""
    return f"Finished {total} iteration(s) | Passed: {passed}/{total} | Pass Rate: {rate}%{beside}"
