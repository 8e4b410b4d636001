"""The chain of questions after a case, for real bugs of released engines: culprit, switch, known,
rewrite, trigger, ladder.

    python campaigns/field/chain.py --out FOLDER [--only ID ...] [--write campaigns/chain.md]

Each bug of ``BUGS`` stands in a model of ours between nodes that do nothing, on a release that has
it, which pip puts into ``FOLDER/site``. One JSON line a bug in ``FOLDER/chain.jsonl``, with what
the commands said; a bug that has one is not asked again, and each of its commands goes on where it
was stopped.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper

sys.path.insert(0, str(Path(__file__).parents[2]))
from narrowdown.engines.known.construct import construct, draw_feed
from narrowdown.engines.known.entry import Construction
from narrowdown.engines.known.table import read_table
from narrowdown.wizard.report.read import read
from narrowdown.wizard.session.state import Visit

NARROWDOWN = [
    sys.executable,
    "-c",
    "import sys; from narrowdown.wizard.cli import main; sys.exit(main())",
]
LIMIT = 1500  # seconds of one command
TRIES = 3  # of a session that was stopped: a busy machine may take its runner for dead
ORT = "onnxruntime==1.20.1,1.22.1,1.23.2,1.26.0,1.28.0,1.29.0,1.30.0,1.31.1,1.32.0"
ORT_FEW = "onnxruntime==1.20.1,1.22.1,1.23.2,1.26.0,1.28.0,1.31.1,1.32.0"
OV_FEW = "openvino==2024.0.0,2025.2.0,2026.4.1"
OV = "openvino==2024.0.0,2024.3.0,2024.6.0,2025.2.0,2026.0.0,2026.4.1"


class Asked(NamedTuple):
    """A bug and the release that it is looked for on. ``releases``: what the ladder is told to
    install. ``searched``: found by ``campaigns/field/hunt.py`` before anybody looked for a thread.
    ``reference``: where the default shares the fault."""

    bug: str
    engine: str
    version: str
    releases: str
    searched: bool = False
    reference: str = ""


BUGS = (
    Asked("ort-gemm-identity-transpose", "onnxruntime:optimization=all", "1.23.2", ORT),
    Asked("ort-averagepool-end-pads", "onnxruntime:optimization=all", "1.23.2", ORT),
    Asked("ort-pad-averagepool-end-pads", "onnxruntime:optimization=all", "1.23.2", ORT),
    Asked("ort-pad-maxpool-fusion", "onnxruntime:optimization=all", "1.31.1", ORT),
    Asked("ort-layernorm-keepdims", "onnxruntime:optimization=all", "1.31.1", ORT),
    Asked("ort-int-div-mul-fusion", "onnxruntime:optimization=all", "1.31.1", ORT),
    Asked("ov-reducel1-axes-attribute", "openvino:precision=f32", "2026.4.1", OV),
    Asked(
        "ort-matmul-transpose-vector",
        "onnxruntime:optimization=all",
        "1.31.1",
        ORT_FEW,
        searched=True,
    ),
    Asked("ort-relu-clip-type", "onnxruntime:optimization=all", "1.31.1", ORT_FEW, searched=True),
    Asked(
        "ort-dequantize-int8-moved",
        "onnxruntime:optimization=all",
        "1.31.1",
        ORT_FEW,
        searched=True,
    ),
    Asked(
        "ort-pad-averagepool-wide", "onnxruntime:optimization=all", "1.31.1", ORT_FEW, searched=True
    ),
    Asked("ov-unsqueeze-wider-ones", "openvino:precision=f32", "2026.4.1", OV_FEW, searched=True),
    Asked("ov-transposes-reduce", "openvino:precision=f32", "2026.4.1", OV_FEW, searched=True),
)


def embed(made: Construction) -> onnx.ModelProto:
    """The construction between nodes that do nothing: two in front of each input, two behind each
    output."""
    model = construct(made)
    graph = model.graph
    front, back = [], []
    for value in graph.input:
        for node in graph.node:
            node.input[:] = [f"{name}__in" if name == value.name else name for name in node.input]
        front += [
            helper.make_node(
                "Unsqueeze",
                [value.name, "first"],
                [f"{value.name}__up"],
                name=f"before_{value.name}",
            ),
            helper.make_node(
                "Squeeze",
                [f"{value.name}__up", "first"],
                [f"{value.name}__in"],
                name=f"at_{value.name}",
            ),
        ]
    for value in graph.output:
        for node in graph.node:
            node.output[:] = [
                f"{name}__out" if name == value.name else name for name in node.output
            ]
            node.input[:] = [f"{name}__out" if name == value.name else name for name in node.input]
        back += [
            helper.make_node(
                "Unsqueeze", [f"{value.name}__out", "first"], [f"{value.name}__up"], name="behind"
            ),
            helper.make_node("Squeeze", [f"{value.name}__up", "first"], [value.name], name="last"),
        ]
    nodes = [*front, *graph.node, *back]
    copied = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copied)
    graph.initializer.append(numpy_helper.from_array(np.asarray([0], np.int64), "first"))
    onnx.checker.check_model(model)
    return model


def site(folder: Path, package: str, version: str) -> str:
    """The folder with this release alone; "" where it is the one that is installed here."""
    from importlib.metadata import version as installed

    if installed(package) == version:
        return ""
    place = folder / "site" / f"{package}-{version}"
    if not place.is_dir():
        words = [
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--only-binary",
            ":all:",
            "--target",
            str(place),
        ]
        subprocess.run([sys.executable, *words, f"{package}=={version}"], check=True, timeout=LIMIT)
    return str(place)


def command(folder: Path, path: str, *words: str) -> tuple[int, str]:
    """(exit code, what it printed) of ``narrowdown WORDS``."""
    paths = [path, str(Path(__file__).parents[2])]
    state = {
        "NARROWDOWN_HOME": str(folder / "home"),
        "XDG_STATE_HOME": str(folder.parent / "state"),
    }
    env = {**os.environ, **state, "PYTHONPATH": os.pathsep.join(p for p in paths if p)}
    with (folder / "log").open("a") as log:
        done = subprocess.run(
            [*NARROWDOWN, *words], env=env, cwd=folder, stdout=subprocess.PIPE, stderr=log, text=True, timeout=LIMIT,
            check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        log.write(f"$ {' '.join(words)}\n{done.stdout}\n= {done.returncode}\n")
    return done.returncode, done.stdout


def walk(out: Path, asked: Asked) -> dict[str, Any]:
    """One row: what each question was answered with. Raises RuntimeError where a command did not
    answer."""
    bug = next(b for b in read_table() if b.id == asked.bug)
    assert bug.make is not None
    folder = out / asked.bug
    folder.mkdir(parents=True, exist_ok=True)
    path = site(out, bug.engine, asked.version)
    onnx.save(embed(bug.make), folder / "model.onnx")
    np.savez(folder / "in.npz", **draw_feed(bug.make, 1))  # type: ignore[arg-type]
    session = folder / "bug"
    if (session / "journal.jsonl").exists():
        command(folder, path, "resume", str(session), "--display", "none")
    else:
        command(
            folder, path, "run", "model.onnx", "--inputs", "in.npz", "--engine", asked.engine, "--session", str(session),
            "--display", "none", *(("--reference", asked.reference) if asked.reference else ()),
        )  # fmt: skip
    report = json.loads(command(folder, path, "report", str(session), "--format", "json")[1])
    row: dict[str, Any] = {
        "bug": asked.bug, "thread": bug.name, "engine": bug.engine, "version": asked.version,
        "end": report["end"],
        "culprits": [{k: c[k] for k in ("ops", "cause", "evidence", "verified")} for c in report["culprits"]],
    }  # fmt: skip
    for visit in ask_after(folder, path, session):
        if (
            visit.outcome is not None
        ):  # a step that was stopped stands there, too, before it goes on
            row[visit.step] = {
                k: v
                for k, v in visit.outcome.items()
                if isinstance(v, str | int | float | bool | None)
            }
    _, said = command(folder, path, "ladder", str(session), *where(out, asked), "--json")
    row["ladder"] = {k: v for k, v in json.loads(said)["cases"][0].items() if k != "rungs"}
    return row


def where(out: Path, asked: Asked) -> tuple[str, ...]:
    """The ladder's releases: those that are to be installed, or the folders that pip has put them
    into already."""
    package, _, versions = asked.releases.partition("==")
    sites = [out / "site" / f"{package}-{version}" for version in versions.split(",")]
    folders = [word for s in sites for word in ("--site", str(s))]
    return tuple(folders) if all(s.is_dir() for s in sites) else ("--install", asked.releases)


def ask_after(folder: Path, path: str, session: Path) -> list[Visit]:
    """The steps of ``after``; a session of it that was stopped goes on. Raises RuntimeError where
    none comes to its end."""
    for _ in range(TRIES):
        begun = sorted(p.parent for p in (folder / "home").glob("*/journal.jsonl"))
        command(
            folder,
            path,
            *(("resume", str(begun[0])) if begun else ("after", str(session))),
            "--display",
            "none",
        )
        for one in sorted(p.parent for p in (folder / "home").glob("*/journal.jsonl")):
            if (state := read(one).state).end:
                return list(state.route)
    raise RuntimeError(
        f"{session}: what comes after the case was not answered; see {folder / 'log'}"
    )


PAGE = """# The whole chain, on real bugs

From a model that is wrong to everything that is asked after the case, for bugs of released engines: each stands in a small
model of ours, on a release that has it. What stands here is what the commands printed; campaigns/field/chain.py runs them and
writes this page. "none": it was asked, and there is none.
"""


def write_page(rows: list[dict[str, Any]]) -> str:
    """The page: a section a bug, in the order of ``BUGS``."""
    order = [asked.bug for asked in BUGS]
    return PAGE + "".join(
        write_section(row) for row in sorted(rows, key=lambda row: order.index(row["bug"]))
    )


def write_section(row: dict[str, Any]) -> str:
    culprits = [
        f"{', '.join(c['ops'])} ({c['cause']}, shown in {c['verified']} builds)"
        for c in row["culprits"]
    ]
    known, rewrite = row["known"], row["rewrite"]
    named = (
        f"{known['bug']}: {known['trigger']}" if known["verdict"] == "known" else known["verdict"]
    )
    cured = {
        "cures": f"{rewrite['rewrite']}, {rewrite['unseen_ok']} of {rewrite['unseen']} other samples right"
    }
    undone = {"undone": f"{rewrite['rewrite']}, undone by the engine's optimizers"}
    switched = [c["evidence"] for c in row["culprits"] if c["cause"] == "optimizer"]
    table = {
        "culprit": "; ".join(culprits) or "none",
        "switch": " ".join(switched) or "none",
        "known": named,
        "rewrite": {**cured, **undone}.get(rewrite["verdict"], "none"),
        "trigger": row["trigger"]["message"],
        "ladder": re.sub(
            r"\S*/site/(\w+)-", r"\1 ", row["ladder"]["message"]
        ),  # a folder is named by its path
    }
    lines = "".join(
        f"| {name} | {said.replace('|', chr(92) + '|')} |\n" for name, said in table.items()
    )
    asked = next(one for one in BUGS if one.bug == row["bug"])
    thread = next(b for b in read_table() if b.id == row["bug"]).thread
    found = (
        "Found by campaigns/field/hunt.py" + ("" if thread else "; no thread known") + ".\n\n"
        if asked.searched
        else ""
    )
    return f"\n## {row['thread']}, {row['engine']} {row['version']}\n\n{found}| asked | answer |\n|---|---|\n{lines}"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--write", type=Path, help="also write the page of all that is there")
    arguments = parser.parse_args()
    out = arguments.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    results = out / "chain.jsonl"
    done = (
        {json.loads(line)["bug"] for line in results.read_text(encoding="utf-8").splitlines()}
        if results.exists()
        else set()
    )
    for asked in BUGS:
        if asked.bug in done or (arguments.only and asked.bug not in arguments.only):
            continue
        row = walk(out, asked)
        with results.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(row) + "\n")
        print(
            asked.bug,
            row["trigger"].get("message", ""),
            row["ladder"].get("message", ""),
            flush=True,
        )
    if arguments.write:
        rows = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
        arguments.write.write_text(write_page(rows), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
