"""The GPU campaign: every case alone on the GPU, a session of its own in a process of its own, one
line a case, whatever becomes of it.

    python campaigns/gpu/campaign.py --out FOLDER [--only NAME ...] [--minutes N] [--pack FILE.tar.gz]
    [--models FOLDER] [--gpus 1]
                                 [--first-gpu 0] [--most SECONDS] [--magika MODEL INPUTS]

Says as it goes when each session had B (its first build of the whole model), its first named
culprit, its first verified workaround and its minimal case, in seconds and in B; writes
``campaign.jsonl`` (one object a case) and keeps each case's log, report and journal, which
``--pack`` puts into one file after every case. ``--gpus``: so many cases at a time, each alone on
its GPU, from ``--first-gpu`` on. ``--minutes``: what is still running then is interrupted, and the
rest is told as not run; ``--most``: of one case.

Every case has a home of its own, so none is warmed by one before it; ``again`` in a name says that
it shares the home of the case before. ``--models``: real models (nudenet.onnx with nudenet_in.npz,
...) that are not committed; each further NAME.onnx with its NAME_in, a file or a folder of samples,
is the case ``as-it-is-NAME``. Needs GPUs with TensorRT; all of it takes hours.
"""

import argparse
import json
import os
import queue
import re
import resource
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
from campaigns.benchmarks.decoder import decoder, generation
from campaigns.gpu.milestones import Story
from narrowdown.wizard.demo import MODELS
from tests.gpu import models  # as a script it has no package to import from

POLYGRAPHY = [
    sys.executable,
    "-c",
    "import sys; from polygraphy.tools import main; sys.exit(main())",
]
NARROWDOWN = [
    sys.executable,
    "-c",
    "import sys; from narrowdown.wizard.cli import main; sys.exit(main())",
]


DIFFERS = "Difference exceeds tolerance"  # what Polygraphy prints where outputs differ
PLANTED = ("nudenet", "paddle_det", "wake")  # real CNNs that get an overflow in their middle
INTERRUPTED = 15.0  # seconds that an interrupted session has to end by itself


class Case:
    """``run`` returns the facts of the case; what it raises becomes its line. ``home``: the case
    whose home it shares."""

    def __init__(
        self, name: str, what: str, run: Callable[[Path], dict[str, Any]], home: str = ""
    ) -> None:
        self.name, self.what, self.run, self.home = name, what, run, home or name


def flow(
    model: Path, inputs: Path, engine: str, *more: str, seconds: float = 400, replay: str = ""
) -> Callable[[Path], dict[str, Any]]:
    """A whole session of the accuracy flow; what its report says."""

    def run(folder: Path) -> dict[str, Any]:
        session = folder / "session"
        samples = sorted(inputs.glob("*.npz")) if inputs.is_dir() else [inputs]
        fed = [word for sample in samples for word in ("--inputs", str(sample))]
        command = [
            *NARROWDOWN,
            "run",
            str(model),
            "--engine",
            engine,
            *fed,
            "--session",
            str(session),
            "--display",
            "plain",
            *more,
        ]
        if (session / "journal.jsonl").exists():  # cut off in an earlier call
            command = [*NARROWDOWN, "resume", str(session), "--display", "plain"]
        story = Story(session / "journal.jsonl")
        code = _logged(command, folder / "run.log", seconds, story=story)
        facts = {"exit": code, **story.facts(), **_reported(session, folder)}
        (folder / "builds.json").write_text(json.dumps(story.builds))
        check = session / "case" / "check.py"
        if check.exists():
            facts["check.py"] = _logged([sys.executable, str(check)], folder / "check.log", 120)
        if replay:
            again = [*NARROWDOWN, "replay", str(session)]
            facts["replay"] = _logged([*again, "--expect", "same"], folder / "replay.log", 200)
            other = [*again, "--engine", replay, "--expect", "fixed"]
            facts["replay on " + replay] = _logged(other, folder / "replay.log", 200)
        return facts

    return run


def step(
    name: str, model: Path, inputs: Path, engine: str, *more: str, seconds: float = 300
) -> Callable[[Path], dict[str, Any]]:
    """One step alone; its JSON."""

    def run(folder: Path) -> dict[str, Any]:
        command = [
            *NARROWDOWN, "step", name, str(model), "--engine", engine, "--inputs", str(inputs), "--json", "--session",
            str(folder / "session"), *more,
        ]  # fmt: skip
        story = Story(folder / "session" / "journal.jsonl")
        code = _logged(command, folder / "run.log", seconds, folder / "step.json", story=story)
        said = (folder / "step.json").read_text()
        found = json.loads(said) if said.strip() else {}
        (folder / "builds.json").write_text(json.dumps(story.builds))
        return {
            "exit": code,
            **story.facts(),
            **{
                k: v
                for k, v in found.items()
                if not isinstance(v, (list, dict)) or len(str(v)) < 400
            },
        }

    return run


def killed(
    model: Path, inputs: Path, engine: str, after: str, probes: int = 1
) -> Callable[[Path], dict[str, Any]]:
    """Kill every process of the session once the step ``after`` has finished so many probes and has
    not ended, resume, and count what was asked twice."""

    def run(folder: Path) -> dict[str, Any]:
        session = folder / "session"
        command = [
            *NARROWDOWN, "run", str(model), "--engine", engine, "--inputs", str(inputs), "--session", str(session), "--display",
            "none",
        ]  # fmt: skip
        with (folder / "first.log").open("wb") as log:
            first = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        journal, deadline = session / "journal.jsonl", time.monotonic() + 300
        while (
            first.poll() is None
            and time.monotonic() < deadline
            and _finished_in(journal, after) < probes
        ):
            time.sleep(0.02)
        ended = first.poll()
        for pid in _group(session):
            os.kill(pid, signal.SIGKILL)
        first.wait()
        finished = journal.read_text(errors="replace").count('"probe.finished"')
        code = _logged(
            [*NARROWDOWN, "resume", str(session), "--display", "plain"], folder / "run.log", 400
        )
        keys = [e["key"] for e in _events(journal) if e["kind"] == "probe.finished" and "key" in e]
        return {
            "exit": code, "ended_before": ended, "probes_before": finished, "probes": len(keys),
            "twice": len(keys) - len(set(keys)), **_reported(session, folder),
        }  # fmt: skip

    return run


# Each step of the route with so many of its probes answered before it is killed. The answers lead
# through every search.
MOMENTS = (
    ("compare", 3), ("sanitize", 1), ("repeat", 1), ("layerwise", 3), ("extract", 1), ("reduce", 4), ("confirm", 2),
    ("workaround", 3),
)  # fmt: skip
THROUGH_ALL = (
    'intermittent: "no"\nlayerwise: "yes"\nextract: "no"\nreduce: "yes"\nminimal-case: workaround\n'
)


def killed_in_each(
    model: Path,
    inputs: Path,
    engine: str,
    seconds: float = 420,
    moments: tuple[tuple[str, int], ...] = MOMENTS,
    through: str = THROUGH_ALL,
) -> Callable[[Path], dict[str, Any]]:
    """One session, killed with SIGKILL in the middle of each of its steps in turn and gone on with;
    in which it was killed, how many probes had been answered by then, and which were answered
    twice. ``moments``: (step, how many of its probes are answered by then); ``through``: the
    answers that lead there."""

    def run(folder: Path) -> dict[str, Any]:
        session, answers = folder / "session", folder / "answers.yaml"
        answers.write_text(through)
        journal, log = session / "journal.jsonl", folder / "run.log"
        more = ["--display", "plain", "--answers", str(answers)]
        begin = [
            "run",
            str(model),
            "--engine",
            engine,
            "--inputs",
            str(inputs),
            "--session",
            str(session),
        ]
        deadline, hits = time.monotonic() + seconds, list[str]()
        for step, probes in moments:
            words = ["resume", str(session)] if journal.exists() else begin
            with log.open("ab") as out:
                process = subprocess.Popen(
                    [*NARROWDOWN, *words, *more],
                    stdout=out,
                    stderr=out,
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,
                )
            while (
                process.poll() is None
                and time.monotonic() < deadline
                and _finished_in(journal, step) < probes
            ):
                time.sleep(0.01)
            over = _is_over(journal, step)
            for pid in (*_workers(session), *_group(session)):
                _kill(pid)
            if process.wait() == -signal.SIGKILL and not over:
                known = sum(e["kind"] == "probe.finished" for e in _events(journal))
                hits.append(f"{step} after {known}")
        code = _logged(
            [*NARROWDOWN, "resume", str(session), *more],
            log,
            max(30.0, deadline - time.monotonic()),
        )
        keys = [e["key"] for e in _events(journal) if e["kind"] == "probe.finished" and "key" in e]
        story = Story(journal)
        story.look()
        (folder / "builds.json").write_text(json.dumps(story.builds))
        return {
            "exit": code, "killed_in": ", ".join(hits), "probes": len(keys), "twice": len(keys) - len(set(keys)), **story.facts(),
            **_reported(session, folder),
        }  # fmt: skip

    return run


def _is_over(journal: Path, step: str) -> bool:
    """Whether the step has ended, or has not begun."""
    events = _events(journal)
    runs = {e["run"] for e in events if e["kind"] == "step.started" and e.get("step") == step}
    return not runs or any(e["kind"] == "step.finished" and e.get("run") in runs for e in events)


def _finished_in(journal: Path, step: str) -> int:
    """How many probes the step has finished; 0 before it begins."""
    events = _events(journal)
    begins = [
        i for i, e in enumerate(events) if e["kind"] == "step.started" and e.get("step") == step
    ]
    return sum(e["kind"] == "probe.finished" for e in events[begins[0] :]) if begins else 0


def listener_killed(model: Path, inputs: Path, engine: str) -> Callable[[Path], dict[str, Any]]:
    """Kill the workers once, as soon as layerwise listens; the session is to lose that probe and go
    on."""

    def run(folder: Path) -> dict[str, Any]:
        session, answers = folder / "session", folder / "answers.yaml"
        answers.write_text(THROUGH_ALL)  # what overflows is cut out without a look at its layers
        command = [
            *NARROWDOWN, "run", str(model), "--engine", engine, "--inputs", str(inputs), "--session", str(session), "--display",
            "plain", "--answers", str(answers),
        ]  # fmt: skip
        with (folder / "run.log").open("wb") as log:
            process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )
        journal, deadline, killed = session / "journal.jsonl", time.monotonic() + 300, []
        while process.poll() is None and time.monotonic() < deadline and not killed:
            text = journal.read_text(errors="replace") if journal.exists() else ""
            if '"layerwise"' in text:
                killed = [p for p in _workers(session) if _kill(p)]
            time.sleep(0.02)
        code = process.wait(400)
        ends = [str(e.get("status")) for e in _events(journal) if e["kind"] == "probe.finished"]
        return {
            "exit": code,
            "killed": len(killed),
            "crashes": ends.count("crash"),
            **_reported(session, folder),
        }

    return run


def crowded(
    model: Path, inputs: Path, engine: str, free: int = 700 << 20
) -> Callable[[Path], dict[str, Any]]:
    """The GPU is full but for ``free`` bytes: what the model needs is not there."""

    def run(folder: Path) -> dict[str, Any]:
        hold = (
            f"import torch, time; free = torch.cuda.mem_get_info()[0]; x = torch.empty(free - {free}, dtype=torch.uint8, "
            "device='cuda'); print('full', flush=True); time.sleep(300)"
        )
        hog = subprocess.Popen([sys.executable, "-c", hold], stdout=subprocess.PIPE)
        assert hog.stdout is not None
        hog.stdout.readline()
        try:
            return {
                **step("compare", model, inputs, engine, seconds=90)(folder),
                "said": _tail(folder / "run.log"),
            }
        finally:
            hog.kill()

    return run


def refused(model: Path, inputs: Path, engine: str) -> Callable[[Path], dict[str, Any]]:
    """What cannot be: its exit and its words."""

    def run(folder: Path) -> dict[str, Any]:
        return {**step("compare", model, inputs, engine)(folder), "said": _tail(folder / "run.log")}

    return run


def quantized(engine: str) -> Callable[[Path], dict[str, Any]]:
    """A Q/DQ model whose channels differ in size, through the flow quantization: quantized as
    TensorRT takes it."""

    def run(folder: Path) -> dict[str, Any]:
        made, inputs = models.scaled_apart(folder)
        more = (
            "--flow",
            "quantization",
            "--reference",
            f"onnxruntime:model={folder / 'float.onnx'}",
        )
        return flow(made, inputs, engine, *more, seconds=300)(folder)

    return run


def guide(folder: Path) -> dict[str, Any]:
    """The guide's example of flaky tactics, by Polygraphy and by us, on its own model; then one
    whose checker finds a kernel bad. The same folders, the same suspects."""
    log = folder / "run.log"
    model, inputs = models.identity(folder)

    def ask(words: list[str], seconds: float = 200) -> int:
        return _logged(words, log, seconds, cwd=folder)

    codes = [
        ask(
            [
                *POLYGRAPHY,
                "run",
                str(model),
                "--onnxrt",
                "--save-inputs",
                "in.json",
                "--save-outputs",
                "golden.json",
            ]
        )
    ]
    check = [
        *POLYGRAPHY,
        "run",
        "polygraphy_debug.engine",
        "--trt",
        "--load-inputs",
        "in.json",
        "--load-outputs",
        "golden.json",
    ]
    theirs = [
        "debug",
        "build",
        str(model),
        "--fp16",
        "--save-tactics",
        "replay.json",
        "--artifacts-dir",
        "theirs",
    ]
    codes.append(
        ask([*POLYGRAPHY, *theirs, "--artifacts", "replay.json", "--until=2", "--check", *check])
    )
    ours = [
        "step",
        "repeat",
        str(model),
        "--engine",
        "tensorrt:precision=fp16",
        "--inputs",
        str(inputs),
        "--until",
        "2",
    ]
    codes.append(
        ask(
            [
                *NARROWDOWN,
                *ours,
                "--artifacts",
                "replay.json",
                "--art-dir",
                "ours",
                "--session",
                "s1",
            ]
        )
    )
    # A checker of their kind, and a kernel that it holds to be bad: the loop around any command.
    convs, _ = models.convolutions(folder)
    checker = Path(__file__).with_name("plant.py")
    words = [
        "step",
        "repeat",
        str(convs),
        "--engine",
        "tensorrt",
        "--until",
        "6",
        "--artifacts",
        "replay.json",
    ]
    words += [
        "--art-dir",
        "planted",
        "--session",
        "s2",
        "--check",
        f"{sys.executable} {checker} {{model}} {folder / 'plant.json'}",
    ]
    codes.append(ask([*NARROWDOWN, *words], 420))
    said = {}
    for place in ("theirs", "ours", "planted"):
        for who, command in (
            ("we", [*NARROWDOWN, "diff-tactics"]),
            ("they", [*POLYGRAPHY, "inspect", "diff-tactics"]),
        ):
            done = subprocess.run(
                [*command, "--dir", place], capture_output=True, text=True, cwd=folder, check=False
            )
            lines = [
                " ".join(x.split("]")[-1].split())
                for x in done.stdout.splitlines()
                if "tactic" in x or "Layer" in x
            ]
            said[f"{who} of {place}"] = " / ".join(lines)[:300] or done.stderr[-200:]
    files = {
        p: sorted(str(f.relative_to(folder)) for f in (folder / p).rglob("*.json"))
        for p in ("theirs", "ours", "planted")
    }
    return {"exit": codes, "files": files, **said}


def planted(
    model: Path, inputs: Path, engine: str, builds: int = 6
) -> Callable[[Path], dict[str, Any]]:
    """Real builds, real choices, and a planted verdict: what chose a certain tactic counts as
    wrong. Is that tactic found?"""

    def run(folder: Path) -> dict[str, Any]:
        import msgspec

        from narrowdown.engines.asking import Note, StepContext
        from narrowdown.engines.findings import Findings
        from narrowdown.engines.probe import Inspect, Measure
        from narrowdown.engines.steps.registry import STEPS
        from narrowdown.engines.store import Store
        from narrowdown.engines.workers import operations

        store = Store(folder / "store")
        info = operations.execute_probe(Inspect(engine=engine), store, lambda _: None).facts
        plant: list[tuple[str, str]] = []
        seen: dict[str, set[str]] = {}
        count = [0]

        known: dict[str, Any] = {}

        def ask(probe: Any) -> Any:
            # The search meets the very builds that were scouted: a new build might choose
            # otherwise.
            question = repr(probe)
            if question not in known:
                known[question] = operations.execute_probe(probe, store, lambda _: None)
            m = known[question]
            if not isinstance(probe, Measure) or m.status != "ok":
                return m
            choices = m.facts.get("build", {}).get("choices", {})
            if choices:
                count[0] += 1
            bad = bool(plant) and choices.get(plant[0][0]) == plant[0][1]
            if not choices:
                bad = True  # the first look, which decides that there is something to search
            factor = 1.0 if bad else 0.0
            results = tuple(
                msgspec.structs.replace(
                    r,
                    outputs=tuple(
                        msgspec.structs.replace(s, rel_l2=factor, equal=not bad) for s in r.outputs
                    ),
                )
                for r in m.results
            )
            return msgspec.structs.replace(m, results=results)

        from narrowdown.engines.problem import Problem
        from narrowdown.engines.views import view_engine

        # Which layers waver here? One whose choice differs between free builds carries the plant.
        context = StepContext(
            engine=engine, reference="onnxruntime", findings=Findings(), engine_info=view_engine(info),
            problem=Problem(model=str(model), inputs=(str(inputs),)), params={"builds": builds},
        )  # fmt: skip

        def drive(generator: Any) -> Any:
            answer = None
            while True:
                try:
                    asked = generator.send(answer)
                except StopIteration as end:
                    return end.value
                answer = None if isinstance(asked, Note) else ask(asked)

        from narrowdown.engines.asking.whole_model import probe_whole
        from narrowdown.engines.steps.prepare import prepare_findings

        def scout() -> Any:
            findings = yield from prepare_findings(context)
            for attempt in range(1, builds + 1):
                m = yield probe_whole(
                    context,
                    findings,
                    samples=(findings.sample,),
                    attempt=attempt,
                    record=True,
                    exclusive=True,
                )
                for layer, choice in m.facts["build"]["choices"].items():
                    seen.setdefault(layer, set()).add(choice)
            return findings

        findings = drive(scout())
        wavering = {layer: sorted(c) for layer, c in seen.items() if len(c) > 1}
        if not wavering:
            return {
                "wavering": 0,
                "layers": len(seen),
                "note": "all builds chose the same: nothing to plant",
            }
        layer = max(wavering, key=lambda k: len(wavering[k]))
        plant.append((layer, wavering[layer][0]))
        finish = drive(STEPS["tactics"].run(msgspec.structs.replace(context, findings=findings)))
        found = finish.findings.tactics
        return {
            "layers": len(seen), "wavering": len(wavering), "planted": layer, "found": sorted(found), "good": finish.outcome.good,
            "bad": finish.outcome.bad, "right": found == dict(plant), "builds": count[0], "message": finish.outcome.message,
        }  # fmt: skip

    return run


def feed_polygraphy(folder: Path, inputs: Path) -> list[str]:
    """Polygraphy's options that build for the shapes of these inputs, which are put into
    ``in.json``."""
    import numpy as np

    from narrowdown.engines.data.polygraphy import write_inputs

    feeds = dict(np.load(inputs))
    write_inputs(folder / "in.json", [feeds])
    fed = [f"{name}:[{','.join(map(str, a.shape))}]" for name, a in feeds.items()]
    return [word for which in ("min", "opt", "max") for word in (f"--trt-{which}-shapes", *fed)]


def peer(
    model: Path, inputs: Path, *flags: str, regex: str = "", seconds: float = 500
) -> Callable[[Path], dict[str, Any]]:
    """Polygraphy's own road: golden outputs of every tensor, then ``debug reduce`` by bisection
    with its own ``run`` as the check; with ``regex`` as its documentation advises, else as it
    comes. Inputs have the shapes that they are fed with."""

    def run(folder: Path) -> dict[str, Any]:
        import onnx

        shapes = feed_polygraphy(folder, inputs)
        log = folder / "run.log"
        golden = [
            "run",
            str(model),
            "--onnxrt",
            "--load-inputs",
            "in.json",
            "--onnx-outputs",
            "*",
            "--save-outputs",
            "golden.json",
        ]
        codes = [_logged([*POLYGRAPHY, *golden], log, 120, cwd=folder)]
        codes.append(
            _logged(
                [*POLYGRAPHY, "data", "merge", "in.json", "golden.json", "-o", "layerwise.json"],
                log,
                120,
                cwd=folder,
            )
        )
        check = [
            *POLYGRAPHY, "run", "polygraphy_debug.onnx", "--trt", *flags, *shapes, "--load-inputs", "layerwise.json",
            "--load-outputs", "golden.json", "--atol", "0.01", "--rtol", "0.01",
        ]  # fmt: skip
        reduce = [
            "debug",
            "reduce",
            str(model),
            "-o",
            "reduced.onnx",
            "--mode=bisect",
            "--load-inputs",
            "layerwise.json",
        ]
        reduce += ["--fail-regex", regex] if regex else []
        begun = time.monotonic()
        codes.append(_logged([*POLYGRAPHY, *reduce, "--check", *check], log, seconds, cwd=folder))
        took = time.monotonic() - begun
        said = log.read_text(errors="replace")
        left = (
            [n.op_type for n in onnx.load(folder / "reduced.onnx").graph.node]
            if (folder / "reduced.onnx").exists()
            else []
        )
        first = re.search(r"Finished engine building in ([0-9.]+) seconds", said)
        return {
"exit": codes, "B": round(float(first[1]), 1) if first else 0.0, "reduce_seconds": round(took, 1),
            "probes": said.count("RUNNING | Iteration"), "nodes": len(left), "left": " ".join(left[:12]),
        }  # fmt: skip

    return run


def kept_by_polygraphy(
    model: Path, inputs: Path, beside: Path, *flags: str
) -> Callable[[Path], dict[str, Any]]:
    """The script ``keep_fp32.py`` of another case's session, given to Polygraphy with the model as
    it is: whether its outputs are right with it and wrong without. ``beside``: the folder of that
    case; ``flags``: of the engine that it was made for."""

    def run(folder: Path) -> dict[str, Any]:
        shapes = feed_polygraphy(folder, inputs)
        compare = [
            *POLYGRAPHY,
            "run",
            str(model),
            "--trt",
            "--fp16",
            "--onnxrt",
            *shapes,
            "--load-inputs",
            "in.json",
        ]
        compare += ["--atol", "0.01", "--rtol", "0.01", *flags]
        script = beside / "session" / "case" / "keep_fp32.py"
        keeping = [
            "--precision-constraints",
            "obey",
            "--trt-network-postprocess-script",
            str(script),
        ]
        facts: dict[str, Any] = {"script": script.exists()}
        for name, words in (("without", []), ("with", keeping)):
            facts[name] = _logged([*compare, *words], folder / "run.log", 200, cwd=folder)
        said = (folder / "run.log").read_text(errors="replace")
        # Polygraphy holds each element to the tolerance, so what is right as a whole may be FAILED
        # there.
        means = re.findall(r"Absolute Difference \| Stats: mean=([0-9.e+-]+)", said)
        return {**facts, "kept": re.findall(r"keep_fp32: [^\n]*", said), "mean_differences": means}

    return run


def on_all_gpus(run: Callable[[Path], dict[str, Any]]) -> Callable[[Path], dict[str, Any]]:
    """The case on every GPU that there is."""

    def run_there(folder: Path) -> dict[str, Any]:
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
        return run(folder)

    return run_there


def _fed_shapes(inputs: Path) -> str:
    """The shapes of a file of inputs, as min_shapes takes them."""
    import numpy as np

    return "+".join(f"{name}:{'x'.join(map(str, a.shape))}" for name, a in np.load(inputs).items())


def large(engine: str, layers: int = 20, seconds: float = 400) -> Callable[[Path], dict[str, Any]]:
    """A decoder of 51 million weights a layer with its cache, whose middle layer squares more than
    FP16 holds."""

    def run(folder: Path) -> dict[str, Any]:
        begun = time.monotonic()
        size = decoder(folder / "decoder.onnx", layers, overflowing=layers // 2)
        inputs = generation(folder / "in.npz", layers)
        made = {"GiB": round(size / 2**30, 2), "made_seconds": round(time.monotonic() - begun, 1)}
        facts = flow(folder / "decoder.onnx", inputs, engine, seconds=seconds)(folder)
        held = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
        written = sum(
            f.stat().st_blocks * 512 for f in (folder / "session").rglob("*") if f.is_file()
        )
        return {
            **made,
            **facts,
            "memory_GiB": round(held, 2),
            "session_GiB": round(written / 2**30, 2),
        }

    return run


def tested(word: str) -> Callable[[Path], dict[str, Any]]:
    """The tests for a GPU whose names hold the word."""

    def run(folder: Path) -> dict[str, Any]:
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-m",
            "gpu",
            str(Path(__file__).parent),
            "-k",
            word,
            "-p",
            "no:cacheprovider",
        ]
        code = _logged(command, folder / "run.log", 600, cwd=Path(__file__).parents[2])
        return {"exit": code, "said": _tail(folder / "run.log")}

    return run


def as_they_are(real: Path, engine: str) -> list[Case]:
    """Models of a folder that are changed in nothing: does the guide end with the right word on
    them?"""
    found = []
    for model in sorted(real.glob("*.onnx")):
        for inputs in (real / f"{model.stem}_in.npz", real / f"{model.stem}_in"):
            if model.stem not in PLANTED and inputs.exists():
                said = f"{model.stem} as it is, weakly typed FP16"
                found.append(
                    Case(f"as-it-is-{model.stem}", said, flow(model, inputs, engine, seconds=900))
                )
    return found


def cases(
    folder: Path, at: Path, magika: tuple[Path, Path] | None, real: Path | None
) -> list[Case]:
    """Those that take long come first. ``folder``: of the models that are made, ``at``: of the
    cases, ``real``: of the models that are not committed."""
    sort, sort_in = MODELS / "sort_tf_massive_m4.onnx", MODELS / "sort_tf_massive_m4_in.npz"
    shapes, shapes_in = MODELS / "shapes_cnn.onnx", MODELS / "shapes_cnn_in.npz"
    norm, norm_in = models.layernorm(folder)
    far, far_in = models.cancelling(folder)
    rated, rated_in = models.rated(folder)
    convs, convs_in = models.convolutions(folder)
    ways, ways_in = models.two_ways(folder)
    weak, strong = "tensorrt:precision=fp16,typing=weak", "tensorrt:precision=fp16,typing=strong"
    right, listening = "tensorrt:precision=fp32", f"{strong},observe=debug"
    int8 = "tensorrt:precision=int8,typing=weak"
    clipped, fine = models.fp8(folder), models.fp8(folder, clipped=False)
    floats = ("--flow", "quantization", "--reference", "onnxruntime:quantization=bypass")
    calibrated = f"{int8},calibration={models.calibration(shapes, shapes_in, folder)}"
    searched = step("precision", sort, sort_in, weak, "--with", "budget=70", seconds=250)
    to_the_case = folder / "to-the-case.yaml"
    to_the_case.write_text("minimal-case: report\n")
    minimal = ("--answers", str(to_the_case))
    long = [
        Case("sort-weak", "sort_tf_massive_m4, weakly typed FP16", flow(sort, sort_in, weak, seconds=1060)),
        Case(
            "sort-weak-4", "the same, four probes at a time on the GPU", flow(sort, sort_in, weak, "--jobs", "4", seconds=1060)
        ),
        Case("sort-strong", "sort_tf_massive_m4, strongly typed FP16", flow(sort, sort_in, strong, seconds=800)),
        Case(
            "peer-sort", "polygraphy debug reduce on sort_tf_massive_m4, weakly typed FP16, as its documentation advises",
            peer(sort, sort_in, "--fp16", regex=DIFFERS),
        ),
        Case("peer-plain", "polygraphy debug reduce on the same, as it comes", peer(sort, sort_in, "--fp16")),
        Case(
            "sort-weak-again", "sort_tf_massive_m4, weakly typed FP16, a second session: what the first timed is there",
            step("compare", sort, sort_in, weak, seconds=300), home="sort-weak",
        ),
        *(
            Case(f"sort-weak-{which}", f"sort_tf_massive_m4, weakly typed FP16, the {which} whole session of a home",
                 flow(sort, sort_in, weak, seconds=400), home="sort-weak")
            for which in ("second", "third")
        ),
        Case("norm-weak-peer", "polygraphy debug reduce on LayerNorm x3000", peer(norm, norm_in, "--fp16", regex=DIFFERS)),
        Case("sort-case", "sort_tf_massive_m4, weakly typed FP16, to its minimal case", flow(sort, sort_in, weak, *minimal)),
        Case(
            "sort-case-two", "the same on every GPU, what a search asks asked beside the first build",
            on_all_gpus(flow(sort, sort_in, weak, *minimal)),
        ),
        Case("ours-reduce", "our step reduce on the same", step("reduce", sort, sort_in, weak, seconds=500)),
    ]  # fmt: skip
    if magika:
        long[1:1] = [
            Case("magika-weak", "magika, weakly typed FP16", flow(*magika, weak, seconds=1000)),
            Case(
                "magika-strong", "magika, strongly typed FP16", flow(*magika, strong, seconds=800)
            ),
            Case(
                "magika-strong-4",
                "the same, four probes at a time on the GPU",
                flow(*magika, strong, "--jobs", "4", seconds=800),
            ),
        ]
    for name in PLANTED if real else ():
        model, inputs = real / f"{name}.onnx", real / f"{name}_in.npz"
        long += [
            Case(
                name,
                f"{name}, a real CNN, weakly typed FP16",
                flow(model, inputs, weak, seconds=900),
            ),
            Case(
                f"{name}-strong",
                f"{name}, strongly typed FP16",
                flow(model, inputs, strong, seconds=900),
            ),
            Case(
                f"peer-{name}",
                f"polygraphy debug reduce on {name}",
                peer(model, inputs, "--fp16", regex=DIFFERS),
            ),
        ]
        if model.exists():
            overflowing = models.plant_overflow(model, inputs, folder)
            long += [
                Case(
                    f"{name}-beside",
                    f"{name} with an overflow planted, weakly typed FP16 without TF32, as Polygraphy builds it",
                    flow(overflowing, inputs, f"{weak},tf32=off", seconds=1500),
                ),
                Case(
                    f"{name}-fixed",
                    "the same, built for the rows that are fed and no other number, as Polygraphy builds it",
                    flow(
                        overflowing,
                        inputs,
                        f"{weak},tf32=off,min_shapes={_fed_shapes(inputs)}",
                        seconds=1500,
                    ),
                ),
                Case(
                    f"{name}-planted",
                    f"{name} with an overflow planted, weakly typed FP16",
                    flow(overflowing, inputs, weak, seconds=900),
                ),
                Case(
                    f"{name}-planted-strong",
                    "the same, strongly typed FP16",
                    flow(overflowing, inputs, strong, seconds=900),
                ),
                Case(
                    f"peer-{name}-planted",
                    f"polygraphy debug reduce on {name} with an overflow planted",
                    peer(overflowing, inputs, "--fp16", regex=DIFFERS, seconds=1500),
                ),
                Case(
                    f"{name}-keeping",
                    f"keep_fp32.py of the session {name}-beside, given to Polygraphy",
                    kept_by_polygraphy(overflowing, inputs, at / f"{name}-beside"),
                ),
            ]
    return [
        *long,
        *(as_they_are(real, weak) if real else ()),
        Case("decoder", "a decoder of 1.2 billion weights with its cache, strongly typed FP16", large(strong)),
        Case("decoder-small", "the same with 2 layers", large(strong, 2)),
        Case("sort-set", "sort_tf_massive_m4, weakly typed: what to keep in FP32, searched alone", searched),
        Case("sort-listener", "the same, watched by a listener", step("layerwise", sort, sort_in, f"{weak},observe=debug")),
        Case("norm-debug", "LayerNorm x3000, strongly typed, by a listener", step("layerwise", norm, norm_in, listening)),
        Case("norm-outputs", "the same, watched as outputs", step("layerwise", norm, norm_in, strong)),
        Case("norm-strong", "LayerNorm x3000, strongly typed FP16", flow(norm, norm_in, strong, replay=right)),
        Case("listener-killed", "the same; the worker dies while it listens", listener_killed(norm, norm_in, listening)),
        Case("planted", "a planted bad tactic in four convolutions, FP32", planted(convs, convs_in, right)),
        Case("guide", "the guide's example of flaky tactics, beside Polygraphy", guide),
        Case("two-ways", "two dynamic inputs, two outputs, strongly typed FP16", flow(ways, ways_in, strong)),
        Case("dynamic", "shapes_cnn, dynamic batch, TF32", flow(shapes, shapes_in, "tensorrt", seconds=300)),
        Case("quantized", "Q/DQ INT8, channels of different size", quantized("tensorrt:precision=model")),
        Case("int8", "shapes_cnn, INT8 by a calibration cache", step("compare", shapes, shapes_in, calibrated)),
        Case("fp8-weak", "Q/DQ FP8, one scale too small, weakly typed", flow(*clipped, "tensorrt:precision=fp8", *floats)),
        Case("fp8-strong", "the same, strongly typed", flow(*clipped, "tensorrt:precision=model", *floats)),
        Case("fp8-right", "Q/DQ FP8, right scales, weakly typed", step("compare", *fine, "tensorrt:precision=fp8")),
        Case("fp8-model", "the same, strongly typed", step("compare", *fine, "tensorrt:precision=model")),
        Case("if-refused", "an If whose other branch TensorRT refuses", flow(rated, rated_in, strong)),
        Case("built", "an engine that TensorRT built is run as it is, and the like of it built again", tested("built")),
        Case("int8-refused", "INT8 with nothing to go by", refused(shapes, shapes_in, int8)),
        Case("unfused-refused", "unfused debug tensors", refused(norm, norm_in, f"{strong},observe=unfused")),
        Case("cache-refused", "the editable timing cache", refused(norm, norm_in, f"{strong},tactics=cache")),
        Case("precision", "3000 added and taken away, strongly typed FP16", step("precision", far, far_in, strong)),
        Case("precision-weak", "the same, weakly typed FP16", step("precision", far, far_in, weak)),
        Case("norm-weak", "LayerNorm x3000, weakly typed FP16", flow(norm, norm_in, weak)),
        Case("wrapped", "every way to write it otherwise, among them tensors wrapped", step("rewrite", norm, norm_in, strong)),
        Case("killed-in-reduce", "sort_tf_massive_m4, weakly typed, at level 1, kill -9 twice in the middle of reduce, resume",
             killed_in_each(sort, sort_in, f"{weak},optimization_level=1", moments=(("reduce", 8), ("reduce", 30)),
                            through=to_the_case.read_text())),
        Case("sort-keeping", "keep_fp32.py of that session, given to Polygraphy",
             kept_by_polygraphy(sort, sort_in, at / "killed-in-reduce", "--builder-optimization-level", "1")),
        Case("killed-in-each", "kill -9 in the middle of each step in turn, resume", killed_in_each(norm, norm_in, strong)),
        Case("killed", "kill -9 in the middle of layerwise, resume", killed(norm, norm_in, strong, "layerwise", 4)),
        *(
            Case(f"killed-{name}", f"kill -9 in the middle of {name}, resume", killed(norm, norm_in, strong, name, probes))
            for name, probes in (("compare", 4), ("sanitize", 1), ("repeat", 3), ("extract", 1), ("reduce", 4), ("confirm", 1),
                                 ("workaround", 4))
        ),
    ]  # fmt: skip


def every(at: Path, magika: tuple[Path, Path] | None, real: Path | None = None) -> list[Case]:
    """All cases; the first needs the GPU for itself. Each process makes its models anew, in a
    folder of its own: cases that run beside it read theirs meanwhile."""
    folder = at / "made" / str(os.getpid())
    folder.mkdir(parents=True)
    full = crowded(*models.convolutions(folder, 64, 256), "tensorrt:precision=fp32")
    return [Case("crowded", "a full GPU", full), *cases(folder, at, magika, real)]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--first-gpu", type=int, default=0)
    parser.add_argument("--most", type=float, default=3600.0)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--minutes", type=float, default=600.0)
    parser.add_argument("--pack", type=Path)
    parser.add_argument("--models", type=Path)
    parser.add_argument("--magika", nargs=2, type=Path)
    parser.add_argument("--case", help="this one, here: what each case is started as")
    given = parser.parse_args()
    given.out = given.out.absolute()
    given.out.mkdir(parents=True, exist_ok=True)
    known = every(given.out, tuple(given.magika) if given.magika else None, given.models)
    if given.case:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        case = next(c for c in known if c.name == given.case)
        facts = case.run(_folder(given.out, case))
        (given.out / case.name / "row.json").write_text(json.dumps(facts, default=str))
        return
    if strange := set(given.only) - {c.name for c in known}:
        parser.error(
            f"no case is called {', '.join(sorted(strange))}; there are {', '.join(c.name for c in known)}"
        )
    # In the order in which they are named.
    chosen = [c for name in given.only for c in known if c.name == name] or known
    # A shell that starts this in the background has it ignored, and so would every session that is
    # to be interrupted.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    lock = threading.Lock()
    begun = time.monotonic()
    ends = begun + 60 * given.minutes

    def one(case: Case, gpu: int) -> None:
        started = time.monotonic()
        until = min(ends, started + given.most)
        late = {"exit": "not run", "error": "no time was left"}
        facts = _apart(case, given.out, until, gpu) if until - started > 5 else late
        row = {
            "case": case.name,
            "what": case.what,
            "seconds": round(time.monotonic() - started, 1),
            **facts,
        }
        with lock:
            with (given.out / "campaign.jsonl").open("a") as file:
                file.write(json.dumps(row, default=str) + "\n")
            print(f"[{time.monotonic() - begun:6.1f}]", json.dumps(row, default=str), flush=True)
            if given.pack:
                _pack(given.out, given.pack)

    free: queue.SimpleQueue[int] = queue.SimpleQueue()
    for gpu in range(given.gpus):
        free.put(given.first_gpu + gpu)

    def lane(home: str) -> None:
        """The cases of one home, one after the other."""
        gpu = free.get()
        for case in (c for c in chosen if c.home == home):
            one(case, gpu)
        free.put(gpu)

    with ThreadPoolExecutor(given.gpus) as pool:
        list(pool.map(lane, dict.fromkeys(c.home for c in chosen)))


def _folder(out: Path, case: Case) -> Path:
    folder = out / case.name
    folder.mkdir(exist_ok=True)
    return folder


def _apart(case: Case, out: Path, ends: float, gpu: int) -> dict[str, Any]:
    """The case in a process of its own, on a GPU and with a home of its own; what is known of it,
    however it ended."""
    folder = _folder(out, case)
    home = out / "homes" / case.home
    home.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "XDG_STATE_HOME": str(home), "NARROWDOWN_CAMPAIGN_ENDS": str(ends)}
    environment["CUDA_VISIBLE_DEVICES"] = str(gpu)
    print(f"-- {case.name}: {case.what}", flush=True)
    given = [a for a in sys.argv[1:] if a != "--case"]
    process = subprocess.Popen(
        [sys.executable, __file__, *given, "--case", case.name], env=environment
    )
    try:
        code = process.wait(max(1.0, ends - time.monotonic()) + 3 * INTERRUPTED)
    except subprocess.TimeoutExpired:
        process.kill()
        code = process.wait()
    try:
        facts: dict[str, Any] = json.loads((folder / "row.json").read_text())
    except (OSError, ValueError):
        story = Story(folder / "session" / "journal.jsonl")
        story.look()
        facts = {
            "exit": "failed",
            "error": f"the case's own process ended with {code}",
            **story.facts(),
        }
    return facts


def _pack(out: Path, target: Path) -> None:
    """All that is told of the cases, without the models and values."""
    kept = (
        "run.log",
        "row.json",
        "builds.json",
        "report.json",
        "step.json",
        "campaign.jsonl",
        "session/journal.jsonl",
    )
    fresh = target.with_suffix(".new")
    with tarfile.open(fresh, "w:gz") as archive:
        for path in sorted(
            p for name in kept for p in (out / name, *out.glob(f"*/{name}")) if p.is_file()
        ):
            archive.add(path, str(path.relative_to(out)))
    fresh.replace(target)


def _logged(
    command: list[str],
    log: Path,
    seconds: float,
    output: Path | None = None,
    cwd: Path | None = None,
    story: Story | None = None,
) -> int:
    """Run to its end or its limit, or that of the campaign; its output in ``log``. ``story``: said
    as it goes."""
    ends = min(time.monotonic() + seconds, float(os.environ.get("NARROWDOWN_CAMPAIGN_ENDS", "inf")))
    with log.open("ab") as file, output.open("wb") if output else log.open("ab") as out:
        process = subprocess.Popen(
            command,
            stdout=out,
            stderr=file,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            cwd=cwd,
        )
        while (code := _ended(process, 1.0)) is None and time.monotonic() < ends:
            _tell(story, log)
        if code is None:  # a session says then what it has
            os.killpg(process.pid, signal.SIGINT)
            code = _ended(process, INTERRUPTED)
        if code is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            code = -9
        _tell(story, log)
        return code


def _ended(process: "subprocess.Popen[bytes]", seconds: float) -> int | None:
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None


def _tell(story: Story | None, log: Path) -> None:
    for line in story.look() if story else ():
        print(f"   {log.parent.name}: {line}", flush=True)


def _reported(session: Path, folder: Path) -> dict[str, Any]:
    """What the session's report says, in short."""
    path = folder / "report.json"
    command = [*NARROWDOWN, "report", str(session), "--format", "json", "-o", str(path)]
    _logged(command, folder / "report.log", 120)
    try:
        report = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    events = _events(session / "journal.jsonl")
    builds = [e for e in events if e["kind"] == "probe.finished"]
    return {
        "verdict": report.get("verdict"),
        "route": " ".join(f"{r['node']}={r['answer']}" for r in report.get("route", ())),
        "culprits": [f"{'+'.join(c['nodes'][:4])} ({c['cause']}, own {c['own']})" for c in report.get("culprits", ())],
        "nodes": f"{report.get('nodes_after')}/{report.get('nodes_before')}",
        "workaround": _workaround(report.get("workaround") or {}),
        "probes": len(builds),
    }  # fmt: skip


def _workaround(found: dict[str, Any]) -> str:
    kept = found.get("keep_higher") or found.get("keep_names") or found.get("nodes") or ()
    return f"{found.get('kind', 'none')} {len(kept) or ''}, error {found.get('error')}, {found.get('cost', '')}".strip()


def _events(journal: Path) -> list[dict[str, Any]]:
    try:
        return [
            json.loads(line)
            for line in journal.read_text(errors="replace").splitlines()
            if line.strip()
        ]
    except (OSError, ValueError):
        return []


def _tail(log: Path) -> str:
    return " ".join(log.read_text(errors="replace").split())[-400:] if log.exists() else ""


def _kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _workers(session: Path) -> list[int]:
    """The session's worker processes: those whose parent works on the session."""
    parents = set(_group(session))
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().decode(errors="replace")
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, ValueError):
                continue
            if "engines/workers/__main__.py" in line and parent in parents:
                found.append(int(entry.name))
    return found


def _group(session: Path) -> list[int]:
    """Every process that works on the session."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if str(session) in line:
                found.append(int(entry.name))
    return found


if __name__ == "__main__":
    main()
