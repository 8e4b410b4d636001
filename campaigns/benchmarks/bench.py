"""All figures of campaigns/benchmarks.md, in one run that can be stopped and gone on with.

    python campaigns/benchmarks/bench.py [NAME...] [--list] [--again] [--keep] [--out FOLDER]

NAME: what is measured, all without one; ``growth`` is all of growth. Each is measured once: what
FOLDER/results.jsonl (default build/bench) has a row of is not measured again, unless ``--again``.
``--keep`` takes the rows into campaigns/benchmarks.jsonl and makes the page of them. A figure that could
not be measured is said, and the others go on.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parent))
import achieved
import growth
import results

TABLES = sorted(p.stem.removeprefix("test_") for p in Path(__file__).parent.glob("test_*.py"))
Measured = Callable[[Path], results.Row]


def singly() -> dict[str, Measured]:
    """What is measured row by row, by name."""
    found: dict[str, Measured] = {}
    for name, work in achieved.ROWS.items():
        found[name] = lambda folder, name=name, work=work: results.made(  # type: ignore[misc]
            achieved.TABLE, name, achieved.HEAD, work(folder)
        )
    for kind, (title, sizes, work) in growth.KINDS.items():
        for size in sizes:
            found[f"growth {kind} {size:g}"] = lambda folder, t=title, s=size, w=work: grown(
                t, s, w(s, folder)
            )  # type: ignore[misc]
    return found


def grown(title: str, size: float, cost: achieved.Cost) -> results.Row:
    assert cost.code in (0, 10), cost.err[-2000:]
    return results.made(
        title, f"{size:g}", growth.HEAD, [f"{size:,g}", cost.cpu, cost.memory], size, cost.cpu
    )


def measure(name: str, work: Measured, file: Path, *, again: bool) -> bool:
    """Measure one row in a folder of its own and keep it; whether that could be done."""
    before = results.read(file)
    done = file.with_name("done")
    known = done.read_text(encoding="utf-8").splitlines() if done.exists() else []
    if name in known and not again:
        print(f"{name}: measured before", flush=True)
        return True
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="narrowdown-bench-") as place:
        try:
            row = work(Path(place))
        except Exception:
            traceback.print_exc()
            print(f"{name}: could not be measured", flush=True)
            return False
    results.write(file, results.merged(before, [row]))
    done.write_text("".join(f"{n}\n" for n in dict.fromkeys([*known, name])), encoding="utf-8")
    print(
        f"{name}: {' | '.join(row.cells)} (measured in {time.monotonic() - begun:.0f} s)",
        flush=True,
    )
    return True


def side_tables(name: str, file: Path) -> bool:
    """The tables of one file of benchmarks."""
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-m",
        "benchmark",
        "-s",
        str(Path(__file__).with_name(f"test_{name}.py")),
    ]
    return subprocess.run(
        words, env={**os.environ, "NARROWDOWN_BENCH": str(file)}, check=False
    ).returncode in (0, 5)


def keep(file: Path) -> None:
    """Take what was measured into campaigns/benchmarks.jsonl and make the page of it: rows of this table
    in the order of its list, without those that nothing measures any more."""
    order = {name: at for at, name in enumerate(achieved.ROWS)}
    rows = results.merged(results.read(results.KEPT), results.read(file))
    listed = sorted(
        (r for r in rows if r.table == achieved.TABLE and r.name in order),
        key=lambda r: order[r.name],
    )
    results.write(results.KEPT, [*listed, *(r for r in rows if r.table != achieved.TABLE)])
    if (plot := file.with_name("probes.svg")).exists():
        shutil.copy(plot, results.PAGE.with_name(plot.name))
    text = results.page(results.TEMPLATE.read_text(encoding="utf-8"), results.read(results.KEPT))
    results.PAGE.write_text(text, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--out", type=Path, default=results.ROOT / "build" / "bench")
    given = parser.parse_args()
    rows = singly()
    if given.list:
        print("\n".join([*rows, *TABLES]))
        return 0
    wanted = {
        n
        for n in (*rows, *TABLES)
        if not given.names or any(n == w or n.startswith(f"{w} ") for w in given.names)
    }
    if not wanted:
        parser.error(f"nothing is called {' '.join(given.names)}; --list tells what there is")
    given.out.mkdir(parents=True, exist_ok=True)
    file = given.out.absolute() / "results.jsonl"
    good = [
        measure(name, work, file, again=given.again)
        for name, work in rows.items()
        if name in wanted
    ]
    good += [side_tables(name, file) for name in TABLES if name in wanted]
    tables: dict[str, list[results.Row]] = {}
    for row in results.read(file):
        tables.setdefault(row.table, []).append(row)
    for name, found in tables.items():
        print(f"\n## {name}\n\n{results.table(found)}", flush=True)
    if given.keep:
        keep(file)
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
