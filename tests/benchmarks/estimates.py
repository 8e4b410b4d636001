"""What steps were expected to take beside what they took: a table of real sessions, read from their journals.

    python tests/benchmarks/estimates.py [FOLDER...] [--page FILE]

FOLDER: sessions, or folders of such, at any depth (a campaign's ``--out``). Without one, a set of sessions on CPU engines is
walked first, with the recommended answers, into build/estimates; what lies there is not walked again. ``--page`` writes the
table into a page, between its marks.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

SOON = 1.0  # seconds; how far off what takes less is does not matter to anyone
FACTOR = 2.0
BEGIN, END = "<!-- estimates: begin -->", "<!-- estimates: end -->"
ROOT = Path(__file__).parents[2]
MODELS = ROOT / "wizard" / "demo" / "models"
SORT = (MODELS / "sort_tf_massive_m4.onnx", "--inputs", MODELS / "sort_tf_massive_m4_in.npz")
SHAPES = (MODELS / "shapes_cnn.onnx", "--inputs", MODELS / "shapes_cnn_in.npz")
PILLARS = (MODELS / "pillars_add.onnx", "--inputs", MODELS / "pillars_add_in.npz")
WALKED: dict[str, tuple[object, ...]] = {
    **{f"demo {name}": ("demo", name) for name in ("shapes", "sort", "magika", "quantized")},
    "sort, bf16": ("run", *SORT, "--engine", "emulate:precision=bf16"),
    "sort, precision": ("run", *SORT, "--engine", "emulate", "--flow", "precision"),
    "shapes, precision": ("run", *SHAPES, "--engine", "emulate", "--flow", "precision"),
    "sort on OpenVINO": ("run", *SORT, "--engine", "openvino:precision=f16"),
    "pillars, two threads": ("run", *PILLARS, "--engine", "onnxruntime:optimization=all,threads=2"),
}


class Told(msgspec.Struct, frozen=True):
    """A step as its journal tells it: -1 where nothing was expected. ``engine``: the name before its options."""

    session: str
    engine: str
    step: str
    expected_probes: int
    probes: int
    expected: float  # seconds
    seconds: float

    @property
    def counts(self) -> bool:
        """Whether it is one that anybody would wait for, and something was said."""
        return self.expected >= 0 and max(self.expected, self.seconds) >= SOON

    @property
    def off(self) -> float:
        return max(self.expected, 0.01) / max(self.seconds, 0.01)

    @property
    def near(self) -> bool:
        """Within the factor, or by less than anybody notices."""
        return 1 / FACTOR <= self.off <= FACTOR or abs(self.expected - self.seconds) < SOON


def read(folders: Iterable[Path]) -> Iterator[Told]:
    """Every finished step of the sessions below these folders; those of exported cases are not sessions."""
    for folder in folders:
        for journal in sorted(folder.rglob("journal.jsonl")):
            if (journal.parent / "session.json").is_file():
                yield from read_session(journal)


def read_session(journal: Path) -> Iterator[Told]:
    problem = json.loads((journal.parent / "session.json").read_text(encoding="utf-8"))
    engine = str(problem.get("problem", problem).get("engine", "?")).partition(":")[0]
    begun: dict[int, dict[str, object]] = {}
    for line in journal.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue  # a kill left half of it
        if event.get("kind") == "step.started":
            begun[event["run"]] = event
        elif event.get("kind") == "step.finished" and (start := begun.get(event["run"])):
            said = start.get("expected") or {}
            yield Told(
                journal.parent.name,
                engine,
                str(start["step"]),
                int(said.get("probes", -1)),
                int(event.get("probes", 0)) - int(event.get("cached", 0)),
                float(said.get("seconds", -1)),
                float(event.get("seconds", 0.0)),
            )


FEW = 5  # probes more or less that nobody notices


def counted_right(t: Told) -> bool:
    """Whether as many probes came as were planned, within the factor: that does not depend on how busy the machine is."""
    few, many = sorted((t.expected_probes, t.probes))
    return many - few <= FEW or many <= FACTOR * few


def table(told: Sequence[Told]) -> str:
    """One row a step and engine; of those that count how many were near, and the furthest."""
    rows = ["| engine | step | times | probes | seconds | within two | furthest |", "|---|---|---|---|---|---|---|"]
    for engine, step in dict.fromkeys((t.engine, t.step) for t in sorted(told, key=lambda t: t.engine)):
        alike = [t for t in told if (t.engine, t.step) == (engine, step)]
        known = [t for t in alike if t.expected >= 0]
        counted = [t for t in alike if t.counts]
        worst = max(counted, key=lambda t: max(t.off, 1 / t.off), default=None)
        rows.append(
            f"| {engine} | {step} | {len(alike)} "
            f"| {sum(t.expected_probes for t in known) if known else '?'} / {sum(t.probes for t in known or alike)} "
            f"| {f'{sum(t.expected for t in known):.1f}' if known else '?'} / {sum(t.seconds for t in known or alike):.1f} "
            f"| {f'{sum(t.near for t in counted)} of {len(counted)}' if counted else ''} "
            f"| {f'{worst.expected:.1f} / {worst.seconds:.1f}' if worst else ''} |"
        )
    return "\n".join(rows)


def summary(told: Sequence[Told]) -> str:
    counted = [t for t in told if t.counts]
    near = sum(t.near for t in counted)
    unknown = sum(t.expected < 0 and t.seconds >= SOON for t in told)
    share = f" ({100 * near / len(counted):.0f} %)" if counted else ""
    planned = [t for t in told if t.expected_probes > 0]
    right = sum(map(counted_right, planned))
    return (
        f"By probes, which no load changes, {right} of {len(planned)} steps that had some to ask within a factor of two or {FEW} "
        "probes. By seconds, "
        f"{near} of {len(counted)} steps{share} within a factor of two, or by less than a second; of {len(told)} steps in "
        f"{len({t.session for t in told})} sessions, {unknown} of a second or more began with nothing known."
    )


def walk(folder: Path) -> None:
    """Walk what was not walked yet, one session after the other."""
    for name, words in WALKED.items():
        place = folder / name.replace(" ", "-").replace(",", "")
        if not (place / "report.html").exists():
            command = [sys.executable, "-m", "wizard", *map(str, words), "--session", str(place), "--display", "none"]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
            print(f"{name}: exit {done.returncode}", file=sys.stderr, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--page", type=Path)
    args = parser.parse_args(argv)
    folders = args.folders
    if not folders:
        folders = [ROOT / "build" / "estimates"]
        folders[0].mkdir(parents=True, exist_ok=True)
        walk(folders[0])
    told = list(read(folders))
    text = f"{table(told)}\n\n{summary(told)}"
    print(text)
    if args.page:
        before, _, rest = args.page.read_text(encoding="utf-8").partition(BEGIN)
        after = rest.partition(END)[2]
        args.page.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
