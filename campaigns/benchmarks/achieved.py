"""What a person waits for: processor seconds that it takes, the least that it could take, and what
the peer takes for the same.

The least (*limit*) of a search is ``limit.py``'s: imports, one marked run of the reference, a build
and a run of each probe that was asked. Of a journal it is one pass over its lines and their
checksums; of a copy, the copy.
"""

import dataclasses
import json
import shlex
import shutil
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

import contents
import faulty
import journals
import limit
import numpy as np
import results
from metering import Cost, run
from test_beside_reduce import PEER, REGEX, layerwise, narrowdown, peer
from test_scale import gathered
from test_screens import Screen

from narrowdown.wizard.demo import DEMOS, MODELS
from narrowdown.wizard.session.folder import DESCRIPTION
from narrowdown.wizard.session.journal import NAME

TABLE = "Achieved, limit and peer"
HEAD = ("what", "cpu s", "limit", "times the limit", "peer", "share of the peer", "MiB", "so that")
Cells = list[object]


SETS = 3  # of 32 files
TIMES = 3  # that ours and the peer's are run in turn: what else the machine does moves a run by a fifth, and both alike


def cells(what: str, cost: Cost, least: float = 0.0, theirs: float = 0.0, said: str = "") -> Cells:
    assert cost.code in (0, 10), cost.err[-2000:]
    return [
        what, cost.cpu, least or "", cost.cpu / least if least else "", theirs or "", cost.cpu / theirs if theirs else "",
        cost.memory, said,
    ]  # fmt: skip


def least(session: Path, folder: Path) -> tuple[float, str]:
    """(processor seconds, what was counted)."""
    done, asked = limit.prepare(session, folder / "limit")
    cost = run([sys.executable, Path(limit.__file__), folder / "limit"], folder)
    assert cost.code == 0, cost.err
    shutil.rmtree(folder / "limit")
    return cost.cpu, f"{done} of {asked} probes in the limit"


def in_turn(ours: Callable[[], Cost], theirs: Callable[[], Cost]) -> tuple[Cost, float, str]:
    """(ours with the processor seconds in the middle, the peer's in the middle, what the share was
    from run to run)."""
    both = [(ours(), theirs()) for _ in range(TIMES)]
    shares = [a.cpu / b.cpu for a, b in both]
    middle = sorted((a for a, _ in both), key=lambda cost: cost.cpu)[TIMES // 2]
    peers = statistics.median(b.cpu for _, b in both)
    return (
        middle,
        peers,
        f"the middle of {TIMES} runs in turn, {min(shares):.2g} to {max(shares):.2g} of the peer",
    )


def blocks(folder: Path) -> int:
    """Bytes on the disk; a file of two names counts once."""
    found = {
        (s.st_dev, s.st_ino): s.st_blocks
        for s in (p.lstat() for p in folder.rglob("*") if p.is_file())
    }
    return 512 * sum(found.values())


def start(folder: Path) -> Cells:
    words = [
        "step",
        "compare",
        MODELS / "shapes_cnn.onnx",
        "--engine",
        "onnxruntime",
        "--display",
        "none",
    ]
    cost = narrowdown(*words, "--session", folder / "s", folder=folder)
    return cells("`step compare`, a small model", cost, *_last(least(folder / "s", folder)))


def engines(folder: Path) -> Cells:
    where = {"XDG_CACHE_HOME": str(folder / "cache")}
    first = run(["narrowdown", "engines"], folder, **where)
    cost = run(["narrowdown", "engines"], folder, **where)
    return cells("`engines`", cost, said=f"the first time {first.cpu:.2g} s")


def _last(found: tuple[float, str]) -> tuple[float, float, str]:
    return found[0], 0.0, found[1]


def checked(folder: Path) -> Cells:
    """A check that costs next to nothing: what is left is each tool's own work."""
    model, script = faulty.chain(folder / "m.onnx", 100, 60), folder / "check.sh"
    script.write_text(
        f"#!/bin/sh\ngrep -aq '{faulty.CULPRIT}60\\.' polygraphy_debug.onnx || exit 0\necho '{REGEX}'\nexit 1\n"
    )
    script.chmod(0o755)
    words = [
        "--check",
        script,
        "--fail-regex",
        REGEX,
        "--json",
        "--jobs",
        "1",
        "--session",
        folder / "s",
    ]
    asked = [
        "-o",
        folder / "out.onnx",
        "--mode=bisect",
        "--fail-regex",
        REGEX,
        "--check",
        *shlex.split(str(script)),
    ]
    cost, theirs, shares = in_turn(
        lambda: anew("step", "reduce", model, *words, folder=folder),
        lambda: peer("debug", "reduce", model, *asked, folder=folder),
    )
    left = len(json.loads(cost.out)["nodes"])
    return cells(
        "`step reduce`, 100 nodes, your own check", cost, 0.0, theirs, f"{left} node left; {shares}"
    )


def anew(*words: str | Path, folder: Path) -> Cost:
    """Ours, in a session that nobody has asked before."""
    shutil.rmtree(folder / "s", ignore_errors=True)
    return narrowdown(*words, folder=folder)


def own(name: str) -> Callable[[Path], Cells]:
    """Each with its own comparison; the peer's golden run and merge counted."""

    def measure(folder: Path) -> Cells:
        if name == "shapes":
            model, inputs = DEMOS[name].model(folder), DEMOS[name].inputs(folder)
        else:
            real = name == "ResNet-50"
            model = (
                faulty.resnet50(folder / "m.onnx")
                if real
                else faulty.pooled(folder / "m.onnx", 300)
            )
            inputs, side = folder / "in.npz", 224 if real else 16
            np.savez(
                inputs,
                x=np.random.default_rng(0).standard_normal((1, 3, side, side), dtype=np.float32),
            )
        words = [
            model,
            "--inputs",
            inputs,
            "--engine",
            "onnxruntime:optimization=all",
            "--json",
            "--jobs",
            "1",
        ]
        _, golden, both, costs = layerwise(model, inputs, folder)
        check = f"{PEER} run polygraphy_debug.onnx --onnxrt --load-inputs {both} --load-outputs {golden} --atol 1e-3 --rtol 1e-3"
        asked = [
            model, "-o", folder / "out.onnx", "--mode=bisect", "--load-inputs", both,
            "--fail-regex", "exceeds tolerance|FAILED", "--check", *shlex.split(check),
        ]  # fmt: skip
        before = sum(each.cpu for each in costs)

        def search() -> Cost:
            cost = peer("debug", "reduce", *asked, folder=folder)
            return dataclasses.replace(cost, cpu=cost.cpu + before)

        cost, theirs, shares = in_turn(
            lambda: anew("step", "reduce", *words, "--session", folder / "s", folder=folder), search
        )
        lowest, counted = least(folder / "s", folder)
        left = len(json.loads(cost.out)["nodes"])
        said = f"{left} nodes left; {counted}; {shares}"
        return cells(f"`step reduce`, {name}, own comparison", cost, lowest, theirs, said)

    return measure


def guide(name: str) -> Callable[[Path], Cells]:
    """The whole guide to a verified workaround."""

    def measure(folder: Path) -> Cells:
        model, inputs = DEMOS[name].model(folder), DEMOS[name].inputs(folder)
        cost, lowest, said = _guided(model, inputs, folder / "s", folder)
        return cells(f"whole guide, {name}", cost, lowest, 0.0, said)

    return measure


def guides(folder: Path) -> Cells:
    """The mean over files that are the same on every machine: which they are moves the guide by
    half."""
    model, rows = DEMOS["magika"].model(folder), []
    for seed in range(1, SETS + 1):
        inputs = contents.write_inputs(folder / f"in-{seed}.npz", seed)
        rows.append(_guided(model, inputs, folder / f"s-{seed}", folder))
    costs, lowest, said = zip(*rows, strict=True)
    mean = dataclasses.replace(
        costs[0], cpu=statistics.mean(c.cpu for c in costs), memory=max(c.memory for c in costs)
    )
    each = "; ".join(f"{c.cpu:.0f} s, {text}" for c, text in zip(costs, said, strict=True))
    return cells(
        f"whole guide, magika, mean of {SETS} sets of files",
        mean,
        statistics.mean(lowest),
        0.0,
        each,
    )


def _guided(model: Path, inputs: Path, session: Path, folder: Path) -> tuple[Cost, float, str]:
    """(what the guide took, the least, what it found)."""
    engine = (
        "onnxruntime:optimization=all"
        if model.stem.startswith("shapes")
        else "emulate:precision=fp16"
    )
    words = [
        "run",
        model,
        "--inputs",
        inputs,
        "--engine",
        engine,
        "--display",
        "none",
        "--session",
        session,
    ]
    cost = narrowdown(*words, folder=folder)
    disk = blocks(session) / 1e6  # before anything is computed from it again
    lowest, counted = least(session, folder)
    report = json.loads(narrowdown("report", session, "--format", "json", folder=folder).out)
    kept = len(report["workaround"]["keep_higher"])
    nodes = f"{kept} nodes kept, " if kept else ""
    return cost, lowest, f"{nodes}{disk:.0f} MB on the disk, {counted}"


def reduced(what: str, model: Path, inputs: Path, folder: Path) -> Cells:
    """``step reduce`` of a real size in FP16, on its own comparison."""
    words = [
        model,
        "--inputs",
        inputs,
        "--engine",
        "emulate:precision=fp16",
        "--json",
        "--session",
        folder / "s",
    ]
    cost = narrowdown("step", "reduce", *words, folder=folder)
    lowest, counted = least(folder / "s", folder)
    left = len(json.loads(cost.out)["nodes"])
    return cells(f"`step reduce`, {what}, FP16", cost, lowest, 0.0, f"{left} nodes left; {counted}")


def of_berts_size(folder: Path) -> tuple[str, Path, Path]:
    model, inputs = faulty.transformer(folder / "m.onnx", opened=True), folder / "in.npz"
    np.savez(inputs, x=np.random.default_rng(0).standard_normal((1, 128, 768), dtype=np.float32))
    return "a transformer of BERT's size, 324 MiB, open batch and length", model, inputs


def of_paddle(folder: Path) -> tuple[str, Path, Path]:
    """The model lies in a wheel of the index, and is kept below build."""
    from campaigns.field import models
    from campaigns.field.inputs import pictures

    kept, inputs = results.ROOT / "build" / "models", folder / "in.npz"
    kept.mkdir(parents=True, exist_ok=True)
    models.fetch(kept, ["ocr4_detection"])
    np.savez(inputs, x=pictures.scaled(pictures.page(640, 640, 0, 12), 0.456, 0.225))
    return (
        "PaddleOCR's detection, 1 x 3 x 640 x 640, open axes",
        kept / "ocr4_detection.onnx",
        inputs,
    )


def of_sort(folder: Path) -> tuple[str, Path, Path]:
    return "sort", DEMOS["sort"].model(folder), DEMOS["sort"].inputs(folder)


def cores(made: Callable[[Path], tuple[str, Path, Path]]) -> Callable[[Path], Cells]:
    """Seconds of the clock on two cores: with one slot, and with two that guess at will. The same
    ends."""

    def measure(folder: Path) -> Cells:
        what, model, inputs = made(folder)
        said, ends, costs = [], set(), {}
        for jobs in ("--jobs 1", "--jobs 2"):
            place = folder / f"s{jobs[-1:]}"
            words = [
                model,
                "--inputs",
                inputs,
                "--engine",
                "emulate:precision=fp16",
                "--display",
                "none",
                *jobs.split(),
            ]
            pinned = [
                "taskset",
                "-c",
                "0,1",
                "narrowdown",
                "step",
                "reduce",
                *words,
                "--session",
                place,
            ]
            costs[jobs] = cost = run(pinned, folder)
            ends.add(run(["narrowdown", "show", place, "--canonical"], folder).out)
            asked = [
                e
                for e in map(json.loads, (place / NAME).read_bytes().splitlines())
                if e["kind"] == "probe.started"
            ]
            ahead = sum(e.get("speculative", False) for e in asked)
            shutil.rmtree(place)
            said.append(
                f"{jobs}: {cost.seconds:.1f} s of the clock, {cost.cpu:.1f} of the processor, {ahead} of "
                f"{len(asked)} probes ahead"
            )
        assert len(ends) == 1, "the number of slots has changed a result"
        return cells(
            f"`step reduce`, {what}, FP16, on two cores", costs["--jobs 1"], said="; ".join(said)
        )

    return measure


def walked(folder: Path) -> Path:
    place = folder / "walked"
    words = [
        "run",
        MODELS / "shapes_cnn.onnx",
        "--engine",
        "onnxruntime",
        "--display",
        "none",
        "--session",
        place,
    ]
    assert narrowdown(*words, folder=folder).code == 0
    return place


def journal(command: str) -> Callable[[Path], Cells]:
    def measure(folder: Path) -> Cells:
        place = folder / "long"
        journals.lengthen(walked(folder), place, 30_000)
        size = (place / NAME).stat().st_size / 2**20
        scan = f"from pathlib import Path; from narrowdown.wizard.session.journal import read; read(Path({str(place / NAME)!r}))"
        lowest = run([sys.executable, "-c", scan], folder, XDG_CACHE_HOME=str(folder / "none"))
        words = [*command.split(), place, *(("--display", "none") if command == "resume" else ())]
        where = {"XDG_CACHE_HOME": str(folder / "cache")}
        first = run(["narrowdown", *words], folder, **where)
        cost = run(["narrowdown", *words], folder, **where)
        peaks = ", ".join(f"{role} {size:.0f}" for role, size in sorted(cost.peaks.items()))
        said = f"the first time {first.cpu:.2g} s and {first.memory:.0f} MiB; journal of {size:.0f} MiB; MiB each: {peaks}"
        return cells(f"`{command}`, 30,000 probes", cost, lowest.cpu, 0.0, said)

    return measure


def many(folder: Path, count: int) -> Path:
    """A folder of so many ended sessions, without what only a step needs."""
    place, slim = walked(folder), folder / "slim"
    slim.mkdir()
    for name in (DESCRIPTION, "flow.yaml", NAME, "lock"):
        shutil.copy(place / name, slim)
    journals.multiply(slim, folder / "home" / "sessions", count)
    return folder / "home"


def screen(count: int) -> Callable[[Path], Cells]:
    """The list in the terminal, from nothing to its rows."""

    def measure(folder: Path) -> Cells:
        shown = Screen([], many(folder, count))
        try:
            drawn = shown.act(lambda: None, "worked around")
            shown.wait(5.0)
            before = shown.used()
            shown.wait(20.0)
            rest = (shown.used() - before) * 5
        finally:
            shown.child.close()
        said = f"on the screen after {drawn.seconds:.1f} s; at rest {rest:.1f} % of a core"
        return [
            f"the terminal's list of {count:,} ended sessions",
            drawn.processor,
            "",
            "",
            "",
            "",
            "",
            said,
        ]

    return measure


def sessions(count: int) -> Callable[[Path], Cells]:
    def measure(folder: Path) -> Cells:
        many(folder, count)
        where = {
            "NARROWDOWN_HOME": str(folder / "home" / "sessions"),
            "XDG_CACHE_HOME": str(folder / "cache"),
        }
        first = run(["narrowdown", "sessions"], folder, **where)
        cost = run(["narrowdown", "sessions"], folder, **where)
        return cells(
            f"`sessions`, {count:,} ended ones", cost, 0.0, 0.0, f"the first time {first.cpu:.2g} s"
        )

    return measure


def weights(gigabytes: int, engine: str, what: str) -> Callable[[Path], Cells]:
    """Weights of real bytes: the limit is to read and to write them once."""

    def measure(folder: Path) -> Cells:
        size = gathered(folder / "m.onnx", gigabytes)
        with (folder / "w.bin").open("r+b") as file:
            block = np.random.default_rng(0).standard_normal(1 << 22, dtype=np.float32).tobytes()
            while file.tell() < size:
                file.write(block)
        inputs = folder / "in.npz"
        np.savez(
            inputs,
            x=np.random.default_rng(0).standard_normal((1, 4, 16, 64), dtype=np.float32),
            ids=np.arange(4),
        )
        lowest = run(["sh", "-c", "sha256sum w.bin && cp w.bin copy.bin && sync copy.bin"], folder)
        (folder / "copy.bin").unlink()
        words = [folder / "m.onnx", "--inputs", inputs, "--engine", engine, "--display", "none"]
        cost = narrowdown("step", "compare", *words, "--session", folder / "s", folder=folder)
        held = blocks(folder / "s")
        written = f"{cost.written * 2**20 / size:.2f} of the weights written, {held / size:.2f} on the disk at the end"
        clock = f"{cost.seconds:.0f} s of the clock, limit {lowest.seconds:.0f}"
        return cells(
            f"`step compare`, {gigabytes} GiB of weights{what}",
            cost,
            lowest.cpu,
            0.0,
            f"{written}; {clock}",
        )

    return measure


ROWS: dict[str, Callable[[Path], Cells]] = {
    "start": start,
    "engines": engines,
    "checked": checked,
    **{f"own {name}": own(name) for name in ("shapes", "300 nodes", "ResNet-50")},
    **{f"guide {name}": guide(name) for name in ("shapes", "sort")},
    "guide magika": guides,
    "bert": lambda folder: reduced(*of_berts_size(folder), folder),
    "paddle": lambda folder: reduced(*of_paddle(folder), folder),
    "cores bert": cores(of_berts_size),
    "cores paddle": cores(of_paddle),
    "cores sort": cores(of_sort),
    **{f"journal {command}": journal(command) for command in ("show", "replay --dry", "resume")},
    **{f"sessions {count}": sessions(count) for count in (100, 1000)},
    **{f"screen {count}": screen(count) for count in (100, 1000)},
    **{f"weights {size}": weights(size, "onnxruntime:optimization=all", "") for size in (1, 2)},
    **{
        f"weights {size} fp16": weights(size, "emulate:precision=fp16", ", FP16") for size in (1, 2)
    },
}
