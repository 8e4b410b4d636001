"""Typed conversion of every float model of the ONNX backend test suite: it converts, it is valid,
it runs. ``pytest -m slow campaigns/typed``."""

import collections
import json
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

WORKER = Path(__file__).with_name("convert.py")
PATIENCE = 120.0  # seconds without a word from a worker; the suite is collected within its first


def said_by(worker: "subprocess.Popen[str]") -> Iterator[dict[str, Any]]:
    """What a worker says, line by line, until it ends or says nothing for too long."""
    assert worker.stdout is not None
    while select.select([worker.stdout], [], [], PATIENCE)[0]:
        line = worker.stdout.readline()
        if not line:
            return
        yield json.loads(line)


def campaign() -> dict[str, dict[str, str]]:
    """name -> what -> verdict, of all models. A worker that dies or hangs costs the model that it
    was at, and another goes on."""
    found: dict[str, dict[str, str]] = {}
    begin = 0
    while True:
        at, name = -1, ""
        with subprocess.Popen(
            [sys.executable, "-W", "ignore", str(WORKER), str(begin)],
            stdout=subprocess.PIPE,
            text=True,
        ) as worker:
            for line in said_by(worker):
                if "begins" in line:
                    at, name = line["begins"], line["name"]
                    found[name] = {"model": "died or hung"}
                else:
                    found[name] = line["verdicts"]
            worker.kill()
        if worker.returncode == 0:
            return found
        assert at >= begin, "a worker ended before its first model"
        begin = at + 1


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_float_model_of_the_backend_suite() -> None:
    """Some 1,400 models in three precisions, with no, half and all of their nodes kept; run by the
    reference evaluator and, in FP16, by ONNX Runtime wherever these run the model itself. With all
    nodes kept the values are the model's own, bit by bit."""
    found = campaign()
    counted: collections.Counter[str] = collections.Counter()
    wrong: list[tuple[str, str, str]] = []
    for name, verdicts in found.items():
        for what, verdict in verdicts.items():
            kind = verdict.partition(":")[0]
            kind = kind if kind in ("ok", "refused", "no kernel", "invalid itself") else "WRONG"
            counted[f"{what}: {kind}"] += 1
            if kind == "WRONG":
                wrong.append((name, what, verdict))
    print(f"typed conversion of {len(found)} models")
    for what, count in sorted(counted.items()):
        print(f"  {what:40} {count}")
    assert wrong == []
    assert counted["fp16 none converted: ok"] > 1300
    assert counted["fp16 half onnxruntime: ok"] > 1000
    assert counted["fp16 none onnxruntime: no kernel"] < 20
