"""What went wrong, as four kinds that look different: your input, the engine said no, a worker
died, our own bug. Pure."""

import re
from typing import Final, Literal

import msgspec

from narrowdown.engines.faults import signal_name
from narrowdown.wizard import Exit
from narrowdown.wizard.report.stage import stage
from narrowdown.wizard.session.events import WorkerDied
from narrowdown.wizard.tui.scene import Scene
from narrowdown.wizard.words import ELSEWHERE, count, window

Kind = Literal["notice", "input", "engine", "worker", "ours"]
LINES: Final = 6  # of a log, in an error's panel

# What engines write when they say no -> what it most likely means and what to try. The first that
# is found counts.
_GUESSES: Final = tuple(
    (re.compile(pattern, re.IGNORECASE), guess)
    for pattern, guess in (
        (r"out of memory|bad_alloc|cannot allocate|std::bad_alloc|OOM|CUDNN_STATUS_ALLOC",
         "Memory ran out. Fewer probes at a time (--jobs 1), a smaller batch, or a larger machine."),
        (r"driver version is insufficient|no CUDA-capable|CUDA driver|libcuda|cudaErrorNoDevice",
         "The GPU or its driver is not usable here; 'narrowdown engines' says what each engine sees."),
        (r"cannot open shared object|No such file or directory.*\.so|DLL load failed|No module named",
         "A library of the engine is missing; reinstall the engine's package."),
        (r"opset|ir_version|IR version",
         "The model is of a newer or older ONNX version than this engine reads; export it with another opset."),
        (r"NOT_IMPLEMENTED|no(t an?)? (implement|import|registered)|(un|not )supported|UNSUPPORTED_NODE",
         "The engine does not have one of the model's operators, or not for that type."),
        (r"external data|initializer.*file|weights.*not found",
         "The model's weights lie in another file that was not found beside it."),
        (r"got invalid dimensions|shape mismatch|dimension|INVALID_ARGUMENT|Unexpected input",
         "The inputs do not fit the model's shapes or types; look at --inputs and --input-shapes."),
        (r"INVALID_GRAPH|Type Error|Type parameter|not a valid model|checker|INVALID_PROTOBUF",
         "The model itself is not valid for this engine; 'python -m onnx.checker' says more."),
        (r"timed? ?out|timeout", "It took too long; --timeout allows more."),
        (r"No space left", "The disk is full; make room, then go on."),
    )
)  # fmt: skip


class Trouble(msgspec.Struct, frozen=True):
    """One thing that stands in the way. ``guess``: what it likely means. ``lines``: the end of a
    log or trace, as it was written, to be found whole at ``where``. ``next``: what to do, its keys
    as actions in braces."""

    kind: Kind
    title: str
    text: str
    guess: str = ""
    lines: tuple[str, ...] = ()
    where: str = ""
    next: str = ""


TITLES: Final[dict[Kind, str]] = {
    "notice": "Note",
    "input": "Your input cannot be used",
    "engine": "This step could not be done",
    "worker": "A worker died",
    "ours": "A bug of narrowdown itself",
}


def guess(text: str) -> str:
    """What the words of an engine most likely mean; "" where they say nothing that we know."""
    return next((meaning for pattern, meaning in _GUESSES if pattern.search(text)), "")


def died(event: WorkerDied, number: int = 0) -> str:
    """A worker's death in one sentence; ``number`` is its probe's in the table."""
    if not event.signal and event.detail:
        return event.detail
    how = f"of {signal_name(event.signal)}" if event.signal else "by itself"
    where = f" in probe {number}" if number else ""
    return f"Worker {event.worker} died {how}{where}."


def troubles(scene: Scene) -> tuple[Trouble, ...]:
    """Everything that the person should know now, the gravest last."""
    found = [*_notices(scene)]
    if worker := _worker(scene):
        found.append(worker)
    if step := _step(scene):
        found.append(step)
    elif scene.face == "stopped":
        found.append(_stopped(scene))
    return tuple(found)


def _notices(scene: Scene) -> list[Trouble]:
    found = []
    if scene.trouble:
        found.append(Trouble("notice", "The session cannot be read just now", scene.trouble))
    if scene.work.holder:
        other = window(scene.work.holder)
        text = (
            f"{other.capitalize()} has taken over, so this one only looks on. Nothing is lost."
            if scene.work.taken
            else f"This session is open in {other}, so this one only looks on."
        )
        title = "Taken over" if scene.work.taken else TITLES["notice"]
        again = " again" if scene.work.taken else ""
        there = scene.work.holder.startswith(ELSEWHERE)  # where no request reaches
        found.append(
            Trouble(
                "notice",
                title,
                text,
                next="" if there else f"Press {{take_over}} to steer it from here{again}.",
            )
        )
    elif scene.work.free and scene.alive:
        text = "The program that held this session has gone, and the work goes on. Your next answer takes it over."
        found.append(Trouble("notice", TITLES["notice"], text))
    visit = scene.visit
    if stage(visit) == "skipped":
        text = "You skipped this step: nothing was measured, so the answer is yours."
        found.append(
            Trouble(
                "notice",
                "Skipped",
                text,
                next="Press {rewind} and choose this step to run it after all.",
            )
        )
    if said := dict.fromkeys(death.detail for death in _deaths(scene) if death.extra):
        found.append(Trouble("notice", TITLES["notice"], " ".join(said)))
    return found


def _deaths(scene: Scene) -> list[WorkerDied]:
    """Of the step at hand, as long as they matter."""
    visit = scene.visit
    if visit is None or not visit.started or scene.face not in ("running", "ask"):
        return []
    return [death for death in scene.state.deaths if death.ts >= visit.started]


def _worker(scene: Scene) -> Trouble | None:
    """Deaths of the step at hand."""
    deaths = [death for death in _deaths(scene) if not death.extra]
    if not deaths:
        return None
    numbers = {row.key: row.number for row in scene.hunt.rows}
    told = [died(event, numbers.get(event.key, 0)) for event in deaths[-3:]]
    more = len(deaths) - len(told)
    if more:
        told.insert(0, f"{more} more before.")
    running = scene.face == "running"
    after = (
        "Another worker goes on by itself."
        if running
        else "Going back to this step ({rewind}) asks such probes again."
    )
    written = deaths[-1].detail if deaths[-1].signal else ""
    details = tuple(line for line in written.splitlines() if line.strip())[-LINES:]
    return Trouble(
        "worker",
        TITLES["worker"],
        " ".join(told),
        lines=details,
        next=f"Such a probe counts as 'cannot tell', neither as pass nor as fail. {after}",
    )


def _step(scene: Scene) -> Trouble | None:
    """A step that was refused or failed, and a session that narrowdown itself ended."""
    visit, closed = scene.visit, scene.state.closed
    error = visit.error if visit else ""
    if (closed and closed.exit_code == Exit.OUR_FAULT) or (
        visit and visit.status == "failed" and "inside narrowdown" in error
    ):
        return Trouble(
            "ours",
            TITLES["ours"],
            error or (closed.reason if closed else ""),
            lines=scene.trace[-LINES:],
            where=str(scene.folder / "logs" / "runner.log"),
            next="The session is safe: everything measured is kept. Press {details} to read and copy the trace for a report."
            + (
                " Press {retry} to go on from here."
                if scene.face == "stopped"
                else " You can still answer."
            ),
        )
    if visit is None or stage(visit) not in ("failed", "cannot run here"):
        return None
    if closed and closed.exit_code == Exit.BAD_USAGE:
        nxt = "Correct the file, then press {edit}: a new session begins with it. Press {retry} to try again as it is."
        return Trouble("input", TITLES["input"], error, next=nxt)
    log = tuple(line for line in scene.log if line.strip())
    meaning = guess("\n".join([error, *log]))
    can = (
        "Press {retry} to try again."
        if scene.face == "stopped"
        else "You can still answer: the last answer asks for nothing measured."
    )
    head = (
        "This step cannot run here." if visit.status == "refused" else "This step did not finish."
    )
    return Trouble(
        "engine",
        TITLES["engine"],
        f"{head} {error}",
        f"Likely: {meaning}" if meaning else "",
        log[-LINES:],
        str(scene.folder / "logs") if log else "",
        f"Press {{log}} for the log. {can} Press {{edit}} to change the set-up.",
    )


def _stopped(scene: Scene) -> Trouble:
    """Nobody works on the session, for no fault of anybody."""
    closed = scene.state.closed
    if closed is None and scene.state.opened and scene.work.phase != "stopped":
        reason = "The session's own process is gone."  # what it did last is no reason
    else:
        reason = scene.work.text or (closed.reason if closed else "")
    parts = [reason] if reason and reason != "stopped" else []
    parts.append("Stopped. Everything measured is kept.")
    if 0 < (left := len(scene.hunt.strip.suspects)) < scene.hunt.strip.whole:
        parts.append(
            f"The smallest part that fails so far: {left:,} of {count(scene.hunt.strip.whole, 'node')}."
        )
    return Trouble("notice", "Stopped", " ".join(parts), next="Press {retry} to go on.")
