"""A worker that hangs, is stopped, fills memory or writes garbage in the middle of a step costs one
probe, is named, and changes no result.

The fault is put into a real worker of the real command, into one measurement only, by a module that
Python loads at start.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from . import tiny

INJECTION = '''
"""One fault, in one measurement of one worker."""
import importlib.machinery, os, signal, sys, time
from pathlib import Path

WORKER = "engines/workers" in " ".join(sys.orig_argv).replace(os.sep, "/")
FAULT, STEP, ONCE = (os.environ[name] for name in ("LOST_FAULT", "LOST_STEP", "LOST_ONCE"))


def strike(probe):
    if probe.__struct_config__.tag != "measure":
        return
    if not (probe.marks if STEP == "layerwise" else probe.candidate.nodes != "*"):
        return
    try:
        Path(ONCE).touch(exist_ok=False)
    except FileExistsError:
        return
    if FAULT == "loop":
        while True:
            pass
    if FAULT == "garbage":
        for number in range(3, 64):  # one of them is the pipe to the pool
            if "pipe:" in (os.readlink(f"/proc/self/fd/{number}") if os.path.islink(f"/proc/self/fd/{number}") else ""):
                try:
                    os.write(number, b"corrupted double-linked list\\n")
                except OSError:
                    pass
        time.sleep(60)
    if FAULT == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    held = []
    while FAULT == "memory" and len(held) < 32:
        held.append(bytearray(b"x") * (64 << 20))
        time.sleep(0.05)


class Finder:
    @staticmethod
    def find_spec(name, path, target=None):
        if name not in ("narrowdown.engines.workers.operations", "narrowdown.engines.store.memory"):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            if name.endswith("memory") and not WORKER:
                module.machine = lambda: 900 << 20  # what the pool takes for the whole machine
            if name.endswith("operations"):
                execute = module.execute_probe
                module.execute_probe = lambda probe, *rest: (strike(probe), execute(probe, *rest))[1]

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, Finder)
'''
SAID = {
    "loop": "did not finish within",
    "stop": "did not finish within",
    "memory": "GiB of memory and was stopped",
    "garbage": "wrote something that is no message",
}


@pytest.mark.parametrize(
    ("step", "fault"),
    [
        ("layerwise", "memory"),
        pytest.param("reduce", "stop", marks=pytest.mark.slow),
        pytest.param("reduce", "garbage", marks=pytest.mark.slow),
        pytest.param("layerwise", "stop", marks=pytest.mark.slow),
        pytest.param("layerwise", "loop", marks=pytest.mark.slow),
        pytest.param("reduce", "memory", marks=pytest.mark.slow),
        pytest.param("reduce", "loop", marks=pytest.mark.slow),
    ],
)
def test_a_worker_that_is_lost_costs_one_probe(
    narrowdown: Callable, surroundings: dict[str, str], tmp_path: Path, step: str, fault: str
) -> None:
    model, inputs = tiny.parts(tmp_path, 3)
    hooks, once, session = tmp_path / "hooks", tmp_path / "struck", tmp_path / "s"
    hooks.mkdir()
    (hooks / "sitecustomize.py").write_text(INJECTION)
    path = os.pathsep.join(filter(None, (str(hooks), os.environ.get("PYTHONPATH"))))
    surroundings |= {
        "PYTHONPATH": path,
        "LOST_FAULT": fault,
        "LOST_STEP": step,
        "LOST_ONCE": str(once),
    }
    ran = narrowdown(
        "step", step, model, "--engine", "emulate", "--inputs", inputs, "--session", session, "--display", "plain",
        "--timeout", "30" if fault == "memory" else "5",
    )  # fmt: skip
    assert once.exists(), "nothing was injected"
    assert ran.code == 0, ran.out + ran.err
    assert "/square0" in ran.out, "the culprit is found all the same"
    events = [json.loads(line) for line in (session / "journal.jsonl").read_bytes().splitlines()]
    deaths = [e for e in events if e["kind"] == "worker.died" and e.get("key")]
    ended = [e for e in events if e["kind"] == "probe.finished"]
    lost = [e for e in ended if (e.get("measurement") or {}).get("status", "ok") != "ok"]
    assert [e["key"] for e in lost] == [d["key"] for d in deaths]
    assert len(lost) == 1
    assert len(ended) > 10
    assert SAID[fault] in ran.said
    assert "was lost and is replaced" in ran.said
    for form in ("md", "html", "json"):
        report = narrowdown("report", session, "--format", form).out
        assert f"One probe of {step} cost its worker" in report, form
        assert SAID[fault] in report


@pytest.mark.slow
def test_a_checker_that_never_returns_costs_one_probe(narrowdown: Callable, tmp_path: Path) -> None:
    """The checker hangs on one candidate only, on the first part of the model; the controls, which
    hold none of it, it passes."""
    model, _ = tiny.parts(tmp_path, 3)
    struck = tmp_path / "struck"
    checker = tmp_path / "checker.py"
    checker.write_text(
        "import onnx, pathlib, sys\n"
        f"struck = pathlib.Path({str(struck)!r})\n"
        "names = {n.name for n in onnx.load(sys.argv[1]).graph.node}\n"
        "if len(names) < 16 and names & {'/square0', '/scaled2'} and not struck.exists():\n"
        "    struck.touch()\n"
        "    while True: pass\n"
        "sys.exit(1 if {'/square0', '/scaled2'} <= names else 0)\n"
    )
    session = tmp_path / "s"
    ran = narrowdown(
        "step", "reduce", model, "--check", f"{sys.executable} {checker} {{model}}", "--timeout", "6", "--session", session,
        "--display", "plain",
    )  # fmt: skip
    assert ran.code == 0, ran.out + ran.err
    assert struck.exists()
    assert "1 unresolved" in ran.said
    assert "/square0" in ran.out
    assert "/scaled2" in ran.out
