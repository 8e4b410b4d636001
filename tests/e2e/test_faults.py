"""Sessions that are killed at every kind of moment end as if nothing had happened (the campaign: ``make faults``)."""

import os
import random
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

import campaign as faults
import tiny

MODELS = Path(__file__).parents[1] / "models"
# Through every step of the flow but nondeterminism, whatever is measured.
ANSWERS = """
reproduce: "yes"
sanitize: "yes"
real-inputs: "no"
intermittent: "yes"
tactics: "no"
layerwise: "yes"
extract: "no"
reduce: ["no", "yes"]
double-check: linear
minimal-case: workaround
workaround: "yes"
"""


@pytest.fixture
def campaign(tmp_path: Path) -> faults.Campaign:
    # The state: what is trusted. Both below the test's folder.
    surroundings = {
        **os.environ,
        "NARROWDOWN_HOME": str(tmp_path / "sessions"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }
    seed = int(os.environ.get("NARROWDOWN_FAULT_SEED", "0"))
    return faults.Campaign(tmp_path, surroundings, seed)


@pytest.fixture
def scenes(tmp_path: Path) -> dict[str, faults.Scene]:
    model, inputs, answers = tiny.norm(tmp_path), tmp_path / "norm.npz", tmp_path / "answers.yaml"
    tiny.feeds(inputs, x=np.abs(tiny.weights(2, 64, seed=9)) * 100)
    answers.write_text(ANSWERS)
    half = (str(model), "--engine", "emulate:precision=fp16", "--inputs", str(inputs))
    shapes = (str(MODELS / "shapes_cnn.onnx"), "--inputs", str(MODELS / "shapes_cnn_in.npz"), "--tolerance", "1e-3")
    checker = tmp_path / "checker.py"
    checker.write_text(
        "import sys, onnx\nops = {n.op_type for n in onnx.load(sys.argv[1]).graph.node}\nsys.exit('Sqrt' in ops)\n"
    )
    told = ("--answers", str(answers))
    found = [
        faults.Scene("whole flow", ("run", *half, *told), told),
        faults.Scene("nondeterminism", ("step", "nondeterminism", *half)),
        faults.Scene("precision", ("step", "precision", *half)),
        faults.Scene("tactics", ("step", "tactics", *shapes)),
        faults.Scene("reduce", ("step", "reduce", *shapes)),
        faults.Scene("a checker", ("step", "reduce", str(model), "--check", f"{sys.executable} {checker} {{model}}")),
    ]
    return {scene.name: scene for scene in found}


def test_a_few_kills_of_each_kind(campaign: faults.Campaign, scenes: dict[str, faults.Scene]) -> None:
    """The campaign's little sibling: one session is killed in one manner after another."""
    scene = scenes["precision"]
    tally = faults.Tally(scene.name, "all")
    campaign.disturbed(
        scene, "mixed", iter([("tree", 0.6), ("torn", 5), ("runner", 6), ("clock", 4), ("paused", 5)]), 5, tally
    )
    assert tally.kills >= 3
    assert tally.wrong == []


@pytest.mark.faults
@pytest.mark.timeout(0)
def test_the_campaign(
    campaign: faults.Campaign, scenes: dict[str, faults.Scene], capsys: pytest.CaptureFixture[str]
) -> None:
    """As many moments as ``NARROWDOWN_FAULTS`` says: half of them along the whole flow, the others in steps of their own."""
    wanted = int(os.environ.get("NARROWDOWN_FAULTS", "1000"))
    if only := os.environ.get("NARROWDOWN_FAULT_SCENES"):
        scenes = {name: scene for name, scene in scenes.items() if name in ["whole flow", *only.split(",")]}
    chance = random.Random(campaign.random.random())
    tallies: dict[tuple[str, str], faults.Tally] = {}
    order = [
        scenes["whole flow"] if i % 2 else scene for i, scene in enumerate(s for s in scenes.values() for _ in (0, 1))
    ]
    if only:
        order = [scene for scene in scenes.values() if scene.name in only.split(",")]
    exports = wanted // 20
    steps: set[str] = set()
    while sum(t.kills for t in tallies.values()) < wanted - exports:
        for scene in order:
            for manner in os.environ.get("NARROWDOWN_FAULT_MANNERS", ",".join(faults.MANNERS)).split(","):
                left = wanted - exports - sum(t.kills for t in tallies.values())
                if left <= 0:
                    break
                tally = tallies.setdefault((scene.name, manner), faults.Tally(scene.name, manner))
                seconds = campaign.straight(scene)[2]
                campaign.disturbed(scene, manner, faults.moments(manner, chance, seconds), left, tally)
                steps |= tally.steps
                with capsys.disabled():
                    print(
                        f"{sum(t.kills for t in tallies.values())} of {wanted}: {scene.name}, {manner}",
                        *tally.wrong,
                        flush=True,
                    )
    campaign.straight(scenes["whole flow"])
    session = campaign.home / "straight-whole flow"
    listed = [*tallies.values(), faults.interrupted_exports(campaign, session, exports, 2.0)]
    with capsys.disabled():
        print(f"\nkilled in: {', '.join(sorted(steps))}\n\n{faults.table(listed)}")
    assert [wrong for tally in listed for wrong in tally.wrong] == []
