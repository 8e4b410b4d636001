"""The fault campaign held to account: a copy of the program breaks one promise after the other, and
each must be noticed.

    python campaigns/faults/fault_mutants.py --jobs 12 --minutes 6 --out FOLDER
    python campaigns/faults/fault_mutants.py --only no-retry,no-sync

Every mutant is a change of a few lines of the program in a temporary copy of it. It goes through a
small campaign, the scene and the manner in which its promise shows, and so does the program as it
is, which must come through unharmed. One line a mutant in ``mutants.jsonl``, from which a further
run with the same ``--out`` goes on; the table in ``table.md``. Exits with 1 where a mutant
survives. Needs what ``fault_run.py`` needs.
"""

import argparse
import collections
import dataclasses
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))  # as a script it has no package to import from

from campaigns.faults import campaign as faults, fault_run

SESSIONS = 12  # of one mutant at most; the first that goes wrong is enough


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One broken promise. ``changes``: (file, text, what stands in its place); the text stands
    there once."""

    name: str
    promise: str
    manner: str
    scene: str
    changes: tuple[tuple[str, str, str], ...]


POOL, DRIVE, JOURNAL = (
    "engines/workers/pool.py",
    "wizard/runner/drive.py",
    "wizard/session/journal.py",
)
STORE, LOCK, WORKER = (
    "engines/store/__init__.py",
    "wizard/session/lock.py",
    "engines/workers/worker.py",
)
OPERATIONS, EXPORT, GATHER = (
    "engines/workers/operations.py",
    "wizard/bundle/export.py",
    "wizard/report/gather.py",
)
_FINISHED = "ProbeFinished(key=name, run=run, measurement=measurement, seconds=seconds)"
_BARE = _FINISHED.replace("=measurement,", "=msgspec.structs.replace(measurement, results=()),")
_NO_RETRY = (POOL, "not job.killed\n                if killed", "False\n                if killed")
_QUEUED = "        self._queue.append(job)\n        self._dispatch()\n        try:\n"
_CRASHED = (
    "        if getattr(self, '_crashed', False):\n            return Measurement(status='crash')\n"
)
_NUMBER = '        number = -code if code < 0 and why == "died" else 0\n'
_LOCKING = "        fcntl.flock(fd, kind | fcntl.LOCK_NB)\n"
_NOTED = "        if kind == fcntl.LOCK_EX and os.fstat(fd).st_size:\n            return False\n"

MUTANTS = (
    Mutant(
        "no-retry", "a probe whose worker was killed is tried once more", "worker", "whole flow",
        (_NO_RETRY,),
    ),
    Mutant(
        "killed-is-a-crash", "a worker that is killed says nothing of its probe", "worker", "whole flow",
        (_NO_RETRY, (POOL, "elif killed and not job.future.done():", "elif False:")),
    ),
    Mutant(
        "a-crash-spreads", "a SIGSEGV costs no other probe than its own", "segv", "whole flow",
        (
            (POOL, _NUMBER, f"{_NUMBER}        self._crashed = True\n"),
            (POOL, _QUEUED, _CRASHED + _QUEUED),
        ),
    ),
    Mutant(
        "unnamed-loss", "a report names the probe that cost its worker", "segv", "whole flow",
        ((GATHER, "        elif death.key:\n", "        elif death.key and False:\n"),),
    ),
    Mutant(
        "last-line-lost", "a whole line stays, whatever is killed", "event", "reduce",
        (
            (
                JOURNAL, "self.state = fold(resolved(scan, path))\n",
                "self.state = fold([*resolved(scan, path)][:-1])\n",
            ),
            (
                JOURNAL, "good = scan.good\n",
                "good = path.read_bytes()[: max(scan.good - 1, 0)].rfind(b'\\n') + 1\n",
            ),
        ),
    ),
    Mutant(
        "no-sync", "what anybody acts on is on the disk before", "power", "reduce",
        ((JOURNAL, "if not isinstance(event, ProbeStarted | WorkerDied):\n", "if False:\n"),),
    ),
    Mutant(
        "file-not-synced", "a file is on the disk before its name is", "power", "whole flow",
        ((STORE, "                os.fsync(file.fileno())\n", "                pass\n"),),
    ),
    Mutant(
        "torn-tail-dropped", "a torn line is set aside, never thrown away", "torn", "precision",
        ((JOURNAL, "self.torn = _set_aside(path, tail)", "pass"),),
    ),
    Mutant(
        "middle-dropped", "a line that was damaged in the middle is named", "damage", "precision",
        (
            (JOURNAL, "raise DamagedJournal(path, bad, \"its checksum does not match\")\n", "break\n"),
        ),
    ),
    Mutant(
        "full-disk-is-an-error", "a disk that is full is no answer", "disk", "whole flow",
        (
            (OPERATIONS, "if (fault := faults.find_fault(error)) is not None:", "if (fault := None) is not None:"),
            (
                OPERATIONS,
                "if fault := faults.find_fault_in_text(answer.message) or faults.find_full_disk(\n"
                "        faults.list_written_places(store.root)\n    ):",
                "if fault := None:",
            ),
        ),
    ),
    Mutant(
        "fault-is-stored", "what the machine refused is never a measurement", "disk", "whole flow",
        ((DRIVE, "if measurement.status == \"fault\":", "if False:"),),
    ),
    Mutant(
        "half-a-line-stays", "a line that the disk does not take leaves no part of itself", "disk", "whole flow",
        ((JOURNAL, "            os.ftruncate(self._fd, self._size)\n", ""),),
    ),
    Mutant(
        "no-disk-named", "the disk that is full is named", "disk", "precision",
        (("engines/faults.py", "The disk{at} is full.", "The disk is full."),),
    ),
    Mutant(
        "verdict-stored", "a measurement is stored, not what was made of it", "event", "reduce",
        (
            (DRIVE, _FINISHED, _BARE),
            (DRIVE, "return plain or self.ledger.measurement(name) or measurement", "return measurement"),
        ),
    ),
    Mutant(
        "run-twice", "a probe that had finished is not run again", "event", "reduce",
        (
            (
                DRIVE, "if measurement is not None and not missing_artifacts(",
                "if name in self.measured and measurement and not missing_artifacts(",
            ),
        ),
    ),
    Mutant(
        "two-writers", "one runner at a time works on a session", "two", "reduce",
        ((LOCK, _LOCKING, "        pass\n"),),
    ),
    Mutant(
        "stale-lock", "a lock that a killed runner has left holds nobody up", "event", "precision",
        ((LOCK, _LOCKING, _NOTED + _LOCKING),),
    ),
    Mutant(
        "temporary-files-left", "no temporary file is left", "unfinished", "precision",
        ((POOL, "        if not self._terms.sweeps:\n", "        if True:\n"),),
    ),
    Mutant(
        "orphans", "everybody notices that the runner is gone", "runner", "a checker",
        (
            (WORKER, "    _die_with(parent)\n", ""),
            (WORKER, "            traceback.print_exc()\n        _end_process()\n", "            traceback.print_exc()\n"),
            (POOL, "        if self._dog is None:\n", "        if False:\n"),
        ),
    ),
    Mutant(
        "half-a-bundle", "a bundle is whole, or not there", "export", "whole flow",
        (
            (EXPORT, "        made = folder / FIRST\n", "        made = target\n"),
            (
                EXPORT,
                "            (_archive if target.suffix == \".zip\" else _move_into_place)(made, target)\n",
                "",
            ),
        ),
    ),
)  # fmt: skip


def copied(source: Path, folder: Path, mutant: Mutant | None = None) -> Path:
    """The program in ``folder``, with the mutant's changes. Raises ValueError where one does not
    apply any more."""
    faults.copied(source, folder)
    for file, text, instead in mutant.changes if mutant else ():
        path = folder / file
        path.write_text(
            changed(mutant.name, file, path.read_text(), text, instead) if mutant else ""
        )
    return folder


def changed(name: str, file: str, source: str, text: str, instead: str) -> str:
    """The source with one change. Raises ValueError where its text does not stand there exactly
    once."""
    if source.count(text) != 1:
        raise ValueError(
            f"the mutant {name} no longer applies: {file} has {source.count(text)} times:\n{text}"
        )
    return source.replace(text, instead)


def examined(
    folder: Path,
    number: int,
    mutant: Mutant | None,
    trial: tuple[str, str],
    straight: faults.Straight,
    deadline: float,
) -> dict[str, Any]:
    """What the campaign has to say of the mutant, or of the program as it is, in one scene and
    manner."""
    name, manner = trial
    home = folder / f"{number:03d}"
    product = copied(folder / "product", home / "product", mutant)
    scene = fault_run.scenes(home / "scenes")[name]
    tally, began = faults.Tally(name, manner), time.monotonic()
    told = mutant.name if mutant else ""
    while (
        tally.sessions < SESSIONS
        and not tally.wrong
        and not tally.skipped
        and time.monotonic() < deadline
    ):
        nth = tally.sessions
        place = home / f"{nth}"
        campaign = faults.Campaign(
            place, fault_run.surroundings(place), f"{told}.{nth}", {name: straight}, product
        )
        try:
            if manner == "export":
                source = folder / faults.straight_folder(name)
                faults.interrupted_exports(
                    campaign, Path(shutil.copytree(source, place / "source")), 5, tally
                )
            elif manner == "disk":
                campaign.filled(scene, 1 + (7 * nth + 11) % faults.SIZES, tally)
            else:
                further = faults.moments(manner, campaign.random, straight.seconds)
                campaign.disturbed(scene, manner, faults.until(deadline, further), 8, tally)
        except Exception as error:  # the program may be broken in a way that the campaign cannot follow: that is noticed, too
            tally.wrong.append(f"{type(error).__name__}: {error}"[:500])
            tally.sessions += 1
    shutil.rmtree(home, ignore_errors=True)
    return {"mutant": told, "took": round(time.monotonic() - began, 1), **vars(tally)}


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Break the program's promises one by one; the campaign must notice each."
    )
    parser.add_argument(
        "--jobs", type=int, default=max(1, (os.cpu_count() or 1) // 2), help="mutants at a time"
    )
    parser.add_argument(
        "--minutes", type=float, default=0.0, help="after these nothing is begun any more"
    )
    parser.add_argument("--only", default="", help="names, by comma; default: all")
    parser.add_argument(
        "--out",
        type=Path,
        help="a folder for the results; a run that was stopped goes on from there",
    )
    told = parser.parse_args()
    out = told.out or Path(tempfile.mkdtemp(prefix="fault-mutants-"))
    out.mkdir(parents=True, exist_ok=True)
    chosen = [mutant for mutant in MUTANTS if not told.only or mutant.name in told.only.split(",")]
    for (
        mutant
    ) in chosen:  # all of them before the first: a mutant that no longer applies is a loud failure
        for file, text, instead in mutant.changes:
            changed(mutant.name, file, (faults.ROOT / file).read_text(), text, instead)
    with tempfile.TemporaryDirectory(prefix="fault-mutants-") as folder:
        records = run(told, chosen, Path(folder), out / "mutants.jsonl")
    text = table(chosen, records)
    (out / "table.md").write_text(text + "\n")
    print(f"\n{text}\n\nIn full: {out / 'mutants.jsonl'}", flush=True)
    return 0 if noticed(chosen, records) and not false_alarms(records) else 1


def run(
    told: argparse.Namespace, chosen: list[Mutant], folder: Path, log: Path
) -> list[dict[str, Any]]:
    """Examine what is not known yet; one record each."""
    deadline = time.monotonic() + told.minutes * 60 if told.minutes else float("inf")
    records = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    known = {
        (r["mutant"], r["scene"], r["manner"])
        for r in records
        if r["wrong"] or r["sessions"] >= SESSIONS or r["skipped"]
    }
    trials = list(dict.fromkeys((mutant.scene, mutant.manner) for mutant in chosen))
    # The mutants first: the program as it is goes through all of its sessions.
    todo: list[tuple[Mutant | None, tuple[str, str]]] = [(m, (m.scene, m.manner)) for m in chosen]
    todo += [(None, trial) for trial in trials]
    todo = [(m, trial) for m, trial in todo if (m.name if m else "", *trial) not in known]
    every = fault_run.scenes(folder / "scenes")
    with ProcessPoolExecutor(told.jobs) as pool, log.open("a") as lines:
        names = list(dict.fromkeys(name for _, (name, _) in todo))
        product = copied(faults.ROOT, folder / "product")
        scenes = [every[name] for name in names]
        straight = dict(
            pool.map(fault_run.undisturbed, [folder] * len(names), scenes, [product] * len(names))
        )
        futures = [
            pool.submit(examined, folder, number, mutant, trial, straight[trial[0]], deadline)
            for number, (mutant, trial) in enumerate(todo)
        ]
        for future in as_completed(futures):
            record = future.result()
            records.append(record)
            print(json.dumps(record), file=lines, flush=True)
            nothing = "nothing was noticed" if record["sessions"] else "not begun in time"
            said = (record["wrong"] or [nothing])[0].splitlines()[0]
            print(
                f"{record['took']:5.0f} s  {record['mutant'] or 'as it is'}, {record['scene']}, {record['manner']}: {said}",
                flush=True,
            )
    return records


def noticed(chosen: Iterable[Mutant], records: Iterable[dict[str, Any]]) -> bool:
    seen = {record["mutant"] for record in records if record["wrong"]}
    left_out = {record["mutant"] for record in records if record["skipped"]}
    return all(mutant.name in seen | left_out for mutant in chosen)


def false_alarms(records: Iterable[dict[str, Any]]) -> list[str]:
    return [text for record in records if not record["mutant"] for text in record["wrong"]]


def table(chosen: Iterable[Mutant], records: Iterable[dict[str, Any]]) -> str:
    """In Markdown: each broken promise and how it was noticed, and what the program as it is came
    through."""
    records = list(records)
    by_name = collections.defaultdict[str, list[dict[str, Any]]](list)
    for record in records:
        by_name[record["mutant"]].append(record)
    rows = [
        "| mutant | the promise that it breaks | manner | sessions | noticed by |",
        "| --- | --- | --- | --- | --- |",
    ]
    for mutant in chosen:
        found = by_name[mutant.name]
        texts = [text for record in found for text in record["wrong"]]
        skipped = next((record["skipped"] for record in found if record["skipped"]), "")
        sessions = sum(record["sessions"] for record in found)
        unnoticed = "**survived**" if sessions else "not begun in time"
        said = (
            fault_run.plainly(texts[0])
            if texts
            else f"left out: {skipped}"
            if skipped
            else unnoticed
        )
        rows.append(
            f"| `{mutant.name}` | {mutant.promise} | {mutant.manner}, {mutant.scene} | {sessions} | {said} |"
        )
    plain = by_name[""]
    said = (
        f"As it is, the program came through {sum(r['sessions'] for r in plain)} sessions of the same scenes and manners, "
        f"{len(false_alarms(records))} wrong."
    )
    return "\n".join([*rows, "", said, *(f"- {text}" for text in false_alarms(records))])


if __name__ == "__main__":
    sys.exit(main())
