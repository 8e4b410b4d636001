"""Which switches cure, over compilers that refuse, crash, flake and lie; and over what TensorRT 10.6
answered on a GPU (``campaigns/logs/knobs.jsonl``)."""

import json
import math
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from narrowdown.engines.asking import FAILS, PASSES, Answer, Note, unknown
from narrowdown.engines.search.switching import Switched, search_switches

REFUSED = unknown("build-failed", "no implementation")
CRASHED = unknown("crash", "it died of signal 11")
MILDER = unknown("milder", "wrong by less")
LOG = Path(__file__).parents[3] / "campaigns" / "logs" / "knobs.jsonl"


class Compiler:
    """Passes with all of one of ``cures`` off. Builds nothing with all of one of ``needs`` off.
    ``flaky``: how often there is no answer; ``lies``: how often it says the contrary. Each set is
    answered alike each time."""

    def __init__(
        self, names: Iterable[str], cures: Iterable[Iterable[str]], needs: Iterable[Iterable[str]] = (), *,
        flaky: float = 0.0, lies: float = 0.0, seed: int = 0,
    ) -> None:  # fmt: skip
        self.names = frozenset(names)
        self.cures, self.needs = [frozenset(c) for c in cures], [frozenset(n) for n in needs]
        self.flaky, self.lies, self.seed = flaky, lies, seed
        self.asked: list[frozenset[str]] = []

    def answer(self, off: frozenset[str]) -> Answer:
        rng = random.Random(f"{self.seed} {sorted(off)}")
        if any(need <= off for need in self.needs):
            return rng.choice((REFUSED, CRASHED))
        if off and rng.random() < self.flaky:
            return rng.choice((REFUSED, CRASHED, MILDER))
        cured = any(cure <= off for cure in self.cures)
        lies = bool(off) and rng.random() < self.lies
        return PASSES if cured != lies else FAILS

    def ask(self, off: frozenset[str]) -> Any:
        self.asked.append(off)
        return self.answer(off)
        yield


def run(compiler: Compiler, **how: Any) -> Switched:
    generator, answer = search_switches(compiler.ask, compiler.names, **how), None
    for _ in range(5000):
        try:
            note = generator.send(answer)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        assert isinstance(note, Note)
    raise AssertionError("it does not end")


def family(name: str) -> str:
    return name.partition(":")[0]


@st.composite
def compilers(draw: st.DrawFn, **rest: Any) -> Compiler:
    seed = draw(st.integers(0, 2**16))
    rng = random.Random(seed)
    names = [
        f"f{i}" if not n else f"f{i}:n{n}"
        for i in range(draw(st.integers(1, 12)))
        for n in range(rng.choice((1, 1, 2, 5)))
    ]
    together = draw(st.integers(1, 2))
    cures = [rng.sample(names, min(together, len(names))) for _ in range(draw(st.integers(0, 2)))]
    needs = [[rng.choice(names)] for _ in range(draw(st.integers(0, 4)))]
    drawn = {k: draw(v) for k, v in rest.items()}
    return Compiler(names, cures, needs, seed=seed, **drawn)


def true(compiler: Compiler, found: Switched) -> None:
    """What is claimed was measured, no set was asked twice, and what was not found has a reason."""
    assert len(compiler.asked) == len(set(compiler.asked))
    assert all(compiler.answer(off) == answer for off, answer in found.asked.items())
    if not found.guilty:
        assert found.why.endswith(".")
        return
    assert found.asked[frozenset(found.guilty)].passes
    assert found.asked[frozenset()].fails
    assert found.alone in found.asked.values()


@settings(max_examples=200, deadline=None)
@given(compilers(), st.booleans())
def test_an_honest_compiler_is_understood(compiler: Compiler, each: bool) -> None:
    found = run(compiler, each=each)
    true(compiler, found)
    builds = [c for c in compiler.cures if not any(n <= c for n in compiler.needs)]
    wholes = [
        frozenset(n for n in compiler.names if family(n) in {family(c) for c in cure})
        for cure in builds
    ]
    if any(not any(n <= whole for n in compiler.needs) for whole in wholes):
        assert found.guilty, "one that builds with its whole families off"
    if found.guilty:
        # What breaks it together, and is cured by either, is accused together.
        assert set(found.guilty) <= frozenset().union(*builds)
        assert len(compiler.cures) > 1 or set(found.guilty) == compiler.cures[0]
    families = len({family(n) for n in compiler.names})
    assert len(found.asked) <= 3 * (families + len(compiler.names)) + 10


@settings(max_examples=200, deadline=None)
@given(compilers(flaky=st.floats(0, 0.9), lies=st.floats(0, 0.5)), st.integers(0, 20))
def test_nothing_is_claimed_that_was_not_measured(compiler: Compiler, budget: int) -> None:
    found = run(compiler, budget=budget, each=True)
    true(compiler, found)
    assert not budget or len(found.asked) <= max(budget, 2) + 2


def test_a_refusal_or_a_crash_is_no_cure() -> None:
    """Every build with something off is refused or dies."""
    names = [f"f{i}" for i in range(9)]
    compiler = Compiler(names, [], [[name] for name in names])
    found = run(compiler, each=True)
    assert not found.guilty
    assert "refused or crashed" in found.why or found.why
    assert not any(a.passes for a in found.asked.values())


def test_one_that_saves_from_another_is_found_on_a_case() -> None:
    """With all off it fails as it does with none off."""

    class Saving(Compiler):
        def answer(self, off: frozenset[str]) -> Answer:
            return PASSES if "breaks" in off and "saves" not in off else FAILS

    names = ["breaks", "saves", "c", "d"]
    assert run(Saving(names, []), each=True).guilty == ("breaks",)
    whole = run(Saving(names, []))
    assert (whole.guilty, len(whole.asked)) == ((), 2), "of the whole model it costs two builds"


def recorded(case: str, cures: set[str], order: random.Random) -> Compiler:
    """TensorRT's answers, other families being refused or failing as they did alone. The names are
    drawn anew, so that the guilty family may stand anywhere."""
    lines = [json.loads(line) for line in LOG.read_text().splitlines()]
    lines = [line for line in lines if line["case"] == case]
    said = {label: line for line in lines for label in line.get("sets", [line["set"]])}
    off = {
        label.removesuffix("=off"): line for label, line in said.items() if label.endswith("=off")
    }
    families = {label.rstrip("*") for label in off if ":" not in label}
    drawn = {name: f"{order.randrange(10**6):06}_{name}" for name in sorted(families)}
    # Of other families the log does not tell the members.
    several = {label.rstrip("*") for label in off if label.endswith("*")}
    members = [label for label in off if ":" in label and label.partition(":")[0] in several]
    members += [f"{name}:one" for name in several - {family(m) for m in members}]
    names = [*drawn.values(), *(m.replace(family(m), drawn[family(m)], 1) for m in members)]
    breaks = [f for f in families if off.get(f"{f}*", off.get(f, {})).get("status") != "ok"]
    bad = {f for f in families - set(breaks) if _is_wrong(off.get(f"{f}*", off.get(f)))}
    assert families - set(breaks) - bad == cures
    return Compiler(names, [[drawn[f]] for f in cures], [[drawn[f]] for f in breaks])


def _is_wrong(line: Any) -> bool:
    return bool(line["bad"] or line["error"] > 1e-2)


@pytest.mark.parametrize(
    ("case", "refused", "cures"),
    [
        ("gru-weak", 9, {"autotune"}),
        ("sort-weak1", 10, {"autotune"}),
        ("decoder-weak1", 10, {"autotune", "einsum_fold_batch"}),
        ("sort-strong1", 10, set()),
        ("wake_embedding-weak1", 0, set()),
    ],
)
def test_recorded_answers_of_a_gpu_end_with_what_cures(
    case: str, refused: int, cures: set[str]
) -> None:
    for seed in range(100):
        compiler = recorded(case, cures, random.Random(seed))
        assert len(compiler.needs) >= refused
        found = run(compiler)
        true(compiler, found)
        guilty = {name.partition("_")[2] for name in found.guilty}
        assert guilty <= cures
        assert bool(guilty) == bool(cures)
        families = len({family(n) for n in compiler.names})
        assert len(found.asked) <= families + 2 * math.log2(len(compiler.names))
