"""sanitize, inputs, repeat, nondeterminism, tactics and double-check over invented answers."""

from typing import Any

import msgspec
import pytest

from narrowdown.engines.asking import Described, StepRefused
from narrowdown.engines.compare.judge import Signature
from narrowdown.engines.findings import Case
from narrowdown.engines.graph import GraphIndex, Node, Tensor
from narrowdown.engines.graph.ranges import decode
from narrowdown.engines.probe import (
    HUGE,
    MADE_UP,
    Candidate,
    Check,
    Describe,
    LoadInputs,
    Measure,
    Measurement,
    SampleResult,
    Sanitize,
    Score,
)
from narrowdown.engines.spec import parse

from .simulated import graph

LOCKED = Signature(
    kind="accuracy", sample="real:0", outputs=("y",), errors={"y": 0.5}, tolerance=0.01
)


def locked(answers: Any, **rest: Any) -> Any:
    return msgspec.structs.replace(
        answers.READY, **{"signature": LOCKED, "sample": "real:0", **rest}
    )


def often(locked_at: int = 20) -> dict[str, Any]:
    return {"signature": msgspec.structs.replace(LOCKED, failures=1, looks=locked_at), "looks": 40}


# -- sanitize


def still(answers: Any) -> Measurement:
    """The original, a second time."""
    return answers.measured(("real:0", 0.5))


def sanitized(
    answers: Any, clean: Measurement, original: Measurement | None = None, near: tuple[float, ...] | None = (0.0, 0.0),
    moved: float = 0.0,
) -> Any:  # fmt: skip
    """``near``: errors of the cleaned model on samples that are made near the given ones; None:
    none can be made. The original is wrong on all of them, and rounding moves them so far."""

    def answer(probe: Any) -> Any:
        if isinstance(probe, Sanitize):
            return Measurement(
                facts={"model": "clean", "nodes_before": 9, "nodes_after": 7, "notes": []}
            )
        if isinstance(probe, Describe):
            return Described(graph([()]), Measurement())
        if isinstance(probe, LoadInputs):
            made = [{"id": f"near:{i}", "source": "near"} for i in range(len(near or ()))]
            refused = Measurement(status="refused", message="a model of sequences")
            return (
                refused if near is None else Measurement(facts={"inputs": "made", "samples": made})
            )
        assert isinstance(probe, Measure)
        if probe.inputs == "made":
            assert near is not None
            errors = (
                near if probe.model == "clean" else (moved if probe.nudge else 0.5,) * len(near)
            )
            return answers.measured(*((s, e) for s, e in zip(probe.samples, errors, strict=False)))
        if probe.model == "clean":
            return clean
        assert original is not None
        return original

    return answer


@pytest.mark.parametrize(
    ("error", "verdict", "model"),
    [
        (0.5, "fails", "clean"),
        (0.2, "fails", "clean"),
        (0.9, "fails", "m"),  # what cleaning up adds was not asked about: on with the original
        (0.0, "passes", "m"),
    ],
)
def test_sanitizing(answers: Any, walk: Any, error: float, verdict: str, model: str) -> None:
    clean = answers.measured(("real:0", error))
    done = walk(
        "sanitize", answers.context(locked(answers)), sanitized(answers, clean, still(answers))
    )
    outcome, found = done.finish.outcome, done.finish.findings
    assert (outcome.verdict, outcome.nodes_before, outcome.nodes_after) == (verdict, 9, 7)
    assert (outcome.error, outcome.error_before) == (error, 0.5)
    assert found.model == model
    assert found.signature.error == (error if model == "clean" else 0.5)
    assert outcome.goes_on == ("sanitized" if model == "clean" else "original")


@pytest.mark.parametrize(("left", "model"), [(0.0, "m"), (0.4, "clean")])
def test_a_sample_that_only_cleaning_makes_fail_is_not_searched(
    answers: Any, walk: Any, left: float, model: str
) -> None:
    """swift-f0 on OpenVINO in BF16: a sample fails as given, and once cleaned up another one in its
    place."""
    signature = Signature("accuracy", sample="real:1", outputs=("y",), errors={"y": 0.5})
    clean = answers.measured(("real:0", 0.45), ("real:1", left))
    before = locked(answers, signature=signature, sample="real:1")
    done = walk("sanitize", answers.context(before), sanitized(answers, clean))
    assert done.finish.findings.model == model
    told = "but sample 1 passes with it, and sample 0 fails; going on with the original."
    assert (told in done.finish.outcome.message) == (model == "m")


@pytest.mark.parametrize(
    ("given", "near", "claimed", "words"),
    [
        (1, (0.0, 0.001), True, "it passes now: 1 of 1 tuning samples and 2 of 2 held-out samples pass"),
        (3, (0.0, 0.0, 0.0), True, "it passes now: 3 of 3 tuning samples and 3 of 3 held-out samples pass"),
        (3, (0.0, 0.5, 0.02), False, "7, but 3 of 3 tuning samples and 1 of 3 held-out samples pass"),
        (3, None, False, "7, but 3 of 3 tuning samples pass; tried on no others; going on with the original."),
        (8, None, True, "it passes now: 8 of 8 tuning samples pass; tried on no others."),
    ],
)  # fmt: skip
def test_a_cure_by_cleaning_is_held_to_samples_made_near_the_given(
    answers: Any, walk: Any, given: int, near: tuple[float, ...] | None, claimed: bool, words: str
) -> None:
    right = answers.measured(*((f"real:0/{i}", 0.0) for i in range(given)))
    done = walk(
        "sanitize",
        answers.context(locked(answers)),
        sanitized(answers, right, still(answers), near),
    )
    outcome = done.finish.outcome
    assert outcome.verdict == ("passes" if claimed else "could-not")
    assert words in outcome.message
    assert (outcome.unseen_ok, outcome.unseen) == (
        sum(e <= 0.01 for e in near or ()),
        len(near or ()),
    )
    assert done.finish.findings.model == "m"


def test_what_depends_on_no_input_is_tried_on_no_others(answers: Any, walk: Any) -> None:
    """ "On all 2 samples, and on 32 made near them" was said of a model that has no inputs."""
    right = answers.measured(("real:0", 0.0))
    inner = sanitized(answers, right, still(answers))

    def folded(probe: Any) -> Any:
        assert not isinstance(probe, LoadInputs)
        if isinstance(probe, Sanitize):
            return Measurement(
                facts={"model": "clean", "nodes_before": 9, "nodes_after": 0, "notes": []}
            )
        return inner(probe)

    outcome = walk("sanitize", answers.context(locked(answers)), folded).finish.outcome
    assert outcome.verdict == "passes"
    assert (
        outcome.message
        == "9 nodes became 0: its outputs depend on no input. As constants they pass."
    )


def test_made_samples_that_rounding_moves_as_far_say_nothing_of_a_cure(
    answers: Any, walk: Any
) -> None:
    right = answers.measured(("real:0", 0.0))
    oracle = sanitized(answers, right, still(answers), near=(0.0, 0.5), moved=0.4)
    outcome = walk("sanitize", answers.context(locked(answers)), oracle).finish.outcome
    assert (outcome.verdict, outcome.unseen_ok, outcome.unseen) == ("passes", 1, 1)


def test_a_cure_of_what_comes_and_goes_is_run_as_often_on_made_samples(
    answers: Any, walk: Any
) -> None:
    quiet = answers.measured(("real:0", 0.0), facts={"runs": 40})
    loud = answers.measured(
        ("real:0", 0.0), runs=((answers.result("real:0", 0.5),),), facts={"runs": 40}
    )
    done = walk(
        "sanitize", answers.context(locked(answers, **often())), sanitized(answers, quiet, loud)
    )
    made = [p for p in done.probes if isinstance(p, Measure) and p.inputs == "made"]
    assert made
    assert all(p.runs == 40 and p.exclusive for p in made)


def test_what_could_not_be_sanitized_goes_on_with_the_original(answers: Any, walk: Any) -> None:
    refused = Measurement(status="refused", message="could not sanitize: a sparse weight.")
    done = walk("sanitize", answers.context(locked(answers)), lambda _: refused)
    outcome = done.finish.outcome
    assert (outcome.verdict, outcome.reason) == (
        "could-not",
        "ONNX-GraphSurgeon fails on it (a sparse weight)",
    )
    assert (
        outcome.message
        == "The model could not be sanitized: ONNX-GraphSurgeon fails on it (a sparse weight)."
    )
    assert done.finish.findings.model == "m"


def test_a_model_that_folds_to_nothing_is_searched_as_it_is(answers: Any, walk: Any) -> None:
    base = sanitized(answers, answers.measured(("real:0", 0.5)))

    def answer(probe: Any) -> Any:
        told = base(probe)
        return (
            msgspec.structs.replace(told, facts={**told.facts, "nodes_after": 0})
            if isinstance(probe, Sanitize)
            else told
        )

    done = walk("sanitize", answers.context(locked(answers)), answer)
    assert (done.finish.outcome.verdict, done.finish.findings.model) == ("could-not", "m")
    assert (
        "as none of it depends on an input; going on with the original."
        in done.finish.outcome.message
    )


@pytest.mark.parametrize("status", ["build-failed", "timeout", "invalid-model"])
def test_a_sanitized_model_that_fails_otherwise_is_not_used(
    answers: Any, walk: Any, status: Any
) -> None:
    broken = Measurement(status=status, message="no parser.")
    done = walk("sanitize", answers.context(locked(answers)), sanitized(answers, broken))
    assert (done.finish.outcome.verdict, done.finish.findings.model) == ("could-not", "m")


def test_an_original_that_does_not_fail_again_was_not_cured(answers: Any, walk: Any) -> None:
    right = answers.measured(("real:0", 0.0))
    done = walk("sanitize", answers.context(locked(answers)), sanitized(answers, right, right))
    outcome = done.finish.outcome
    assert (outcome.verdict, done.finish.findings.model) == ("could-not", "m")
    assert "run again, the original did not fail either" in outcome.reason
    assert [p.attempt for p in done.probes if isinstance(p, Measure) and p.model == "m"] == [1]


def test_a_failure_that_comes_and_goes_is_not_cured_by_silence(answers: Any, walk: Any) -> None:
    quiet = answers.measured(("real:0", 0.0), facts={"runs": 40})
    loud = answers.measured(
        ("real:0", 0.0), runs=((answers.result("real:0", 0.5),),), facts={"runs": 40}
    )
    context = answers.context(locked(answers, **often()))
    done = walk("sanitize", context, sanitized(answers, quiet, quiet))
    assert (done.finish.outcome.verdict, done.finish.findings.model) == ("could-not", "m")
    done = walk("sanitize", context, sanitized(answers, quiet, loud))
    assert done.finish.outcome.verdict == "passes"
    done = walk("sanitize", context, sanitized(answers, loud))
    assert (done.finish.outcome.verdict, done.finish.findings.model) == ("fails", "clean")
    assert (done.finish.findings.signature.looks, done.finish.findings.sample) == (20, "real:0")
    assert all(p.exclusive and p.runs == 40 for p in done.probes if isinstance(p, Measure))
    # What fails now and then on random values says nothing of the failure that was seen on real
    # ones.
    assert all(p.samples == ("real:0",) for p in done.probes if isinstance(p, Measure))


# -- inputs


@pytest.mark.parametrize(
    ("real", "random", "verdict"),
    [(0.5, 0.5, "no"), (0.5, 0.0, "only-real"), (0.0, 0.5, "helps"), (0.0, 0.0, "no")],
)
def test_real_beside_random(
    answers: Any, walk: Any, real: float, random: float, verdict: str
) -> None:
    given, made = (
        answers.measured(("real:0/0", real), ("real:0/1", 0.0)),
        answers.measured((MADE_UP, random)),
    )
    oracle = lambda probe: made if probe.samples == (MADE_UP,) else given  # noqa: E731
    outcome = walk("inputs", answers.context(locked(answers)), oracle).finish.outcome
    assert outcome.verdict == verdict
    assert (outcome.real_error, outcome.real_samples, outcome.real_failing) == (
        real,
        2,
        int(real > 0),
    )
    assert (outcome.random_error, outcome.random_samples) == (random, 1)


def test_no_real_inputs(answers: Any, walk: Any) -> None:
    context = answers.context(locked(answers, samples=(answers.RANDOM,)))
    outcome = walk("inputs", context, lambda _: answers.measured((MADE_UP, 0.5))).finish.outcome
    assert (outcome.verdict, outcome.real_error, outcome.random_failing) == ("none-given", None, 1)


# -- repeat


def repeated(answers: Any, *, runs: int = 0, builds: Any = ()) -> Any:
    """One build of which ``runs`` runs fail after the first; fresh builds fail as told."""

    def answer(probe: Any) -> Measurement:
        if probe.attempt:
            return answers.measured(("real:0", 0.5 if builds[probe.attempt - 1] else 0.0))
        bad = tuple((answers.result("real:0", 0.5),) for _ in range(runs))
        first = 0.5 if runs == probe.runs else 0.0
        return answers.measured(
            ("real:0", first),
            runs=() if first else bad,
            varies=not first and bool(runs),
            facts={"runs": probe.runs},
        )

    return answer


def test_a_steady_failure_on_an_engine_that_always_builds_the_same(answers: Any, walk: Any) -> None:
    capabilities = {"rebuild": answers.ABSENT, "optimizers": answers.PRESENT}
    context = answers.context(
        locked(answers), capabilities=capabilities, info={"optimizers": NAMES}
    )
    outcome = walk("repeat", context, repeated(answers, runs=5)).finish.outcome
    assert (
        outcome.behaviour,
        outcome.builds,
        outcome.runs,
        outcome.failures,
        outcome.switchable,
    ) == (
        "steady",
        1,
        5,
        5,
        True,
    )


@pytest.mark.parametrize("rebuild", [True, False])
def test_one_build_that_varies_needs_no_other(answers: Any, walk: Any, rebuild: bool) -> None:
    context = answers.context(
        locked(answers), capabilities={"rebuild": answers.PRESENT if rebuild else answers.ABSENT}
    )
    done = walk("repeat", context, repeated(answers, runs=2))
    outcome = done.finish.outcome
    assert (outcome.behaviour, outcome.failures, outcome.runs, outcome.bitwise_varies) == (
        "same-engine",
        2,
        5,
        True,
    )
    assert done.finish.findings.looks > 5
    assert all(p.exclusive for p in done.probes)


def test_a_failure_that_does_not_come_back_comes_and_goes(answers: Any, walk: Any) -> None:
    context = answers.context(locked(answers, **often()), capabilities={"rebuild": answers.PRESENT})
    outcome = walk("repeat", context, repeated(answers, runs=0)).finish.outcome
    assert (outcome.behaviour, outcome.failures, outcome.runs) == ("same-engine", 0, 40)


@pytest.mark.parametrize(
    ("builds", "behaviour", "failures", "looks"),
    [
        ((1, 1, 1, 1), "steady", 5, 5),
        ((1, 0, 1, 1, 0), "rebuilds-differ", 4, 6),
        ((1, 1, 1, 0, 1), "rebuilds-differ", 5, 6),
    ],
)
def test_fresh_builds(
    answers: Any, walk: Any, builds: Any, behaviour: str, failures: int, looks: int
) -> None:
    """The build that showed the failure is the first; five of five are enough, and where some pass
    the rate is wanted."""
    context = answers.context(locked(answers), capabilities={"rebuild": answers.PRESENT})
    done = walk("repeat", context, repeated(answers, runs=5, builds=builds))
    outcome = done.finish.outcome
    assert (outcome.behaviour, outcome.builds, outcome.failures) == (behaviour, looks, failures)
    assert [p.attempt for p in done.probes] == list(range(len(builds) + 1))
    assert outcome.interval_low < failures / looks <= outcome.interval_high


@pytest.mark.parametrize(
    ("emulated", "settled"),
    [(0.4, True), (HUGE, True), (0.04, False), (0.009, False), (None, False)],
)
def test_what_a_faultless_engine_does_too_needs_no_fresh_build(
    answers: Any, walk: Any, emulated: float | None, settled: bool
) -> None:
    findings = locked(answers, emulated=emulated)
    context = answers.context(findings, capabilities={"rebuild": answers.PRESENT})
    done = walk("repeat", context, repeated(answers, runs=5, builds=(1, 1, 1, 1)))
    assert done.finish.outcome.behaviour == "steady"
    assert any(p.attempt for p in done.probes) != settled
    assert ("no choice of kernels is to blame" in done.finish.outcome.message) == settled
    assert ("FP16 alone makes the model fail" in done.finish.outcome.message) == settled


def test_builds_that_do_not_answer_are_not_counted(answers: Any, walk: Any) -> None:
    def answer(probe: Any) -> Measurement:
        if probe.attempt in (1, 2):
            return Measurement(status="timeout", message="slow")
        return answers.measured(("real:0", 0.5), facts={"runs": 5} if not probe.attempt else {})

    outcome = walk(
        "repeat",
        answers.context(locked(answers), capabilities={"rebuild": answers.PRESENT}),
        answer,
    ).finish.outcome
    assert (outcome.builds, outcome.failures, outcome.behaviour) == (4, 4, "steady")


def test_builds_that_fail_to_build_are_repeated_too(answers: Any, walk: Any) -> None:
    findings = msgspec.structs.replace(
        locked(answers), signature=Signature(kind="build", sample="real:0")
    )
    outcome = walk(
        "repeat", answers.context(findings), lambda _: Measurement(status="build-failed")
    ).finish.outcome
    assert (outcome.behaviour, outcome.builds, outcome.failures, outcome.switchable) == (
        "steady",
        5,
        5,
        False,
    )


def test_alone_on_a_model_that_passes_it_looks_until_it_fails_or_gives_up(
    answers: Any, walk: Any
) -> None:
    def answer(probe: Any) -> Measurement:
        return answers.measured(("real:0", 0.0), run_seconds=0.01, facts={"runs": probe.runs})

    outcome = walk("repeat", answers.context(), answer).finish.outcome
    assert (outcome.behaviour, outcome.runs, outcome.failures) == ("steady", 300, 0)
    assert outcome.message == "300 runs of one build, no failure."
    assert outcome.missed == "A fault in fewer than 1 of 100 runs would not have shown."


def test_a_check_is_repeated(answers: Any, walk: Any) -> None:
    findings = msgspec.structs.replace(
        locked(answers), signature=Signature(kind="check", sample="real:0")
    )
    done = walk(
        "repeat",
        answers.context(findings, check="check.py"),
        lambda p: Measurement(facts={"returncode": p.attempt % 2}),
    )
    assert all(isinstance(p, Check) for p in done.probes)
    assert (
        done.finish.outcome.behaviour,
        done.finish.outcome.failures,
        done.finish.outcome.builds,
    ) == (
        "rebuilds-differ",
        4,
        6,
    )


@pytest.mark.parametrize(
    ("until", "asked", "behaviour"),
    [
        ("1", "p", "steady"),
        ("3", "ppf", "rebuilds-differ"),
        ("bad", "ppf", "rebuilds-differ"),
        ("good", "p", "steady"),
    ],
)
@pytest.mark.parametrize("check", ["check.py", ""])
def test_repeat_until(
    answers: Any, walk: Any, until: str, asked: str, behaviour: str, check: str
) -> None:
    """Fresh builds or checks, every third of which fails, counted from the very first."""

    asked_for: list[int] = []

    def answer(probe: Any) -> Measurement:
        fails = probe.attempt % 3 == 2
        if check:
            return Measurement(facts={"returncode": int(fails)}, artifacts={"a": "d"}, nodes=5)
        assert isinstance(probe, Measure)
        assert probe.save == "repeat"
        asked_for.append(probe.attempt)
        return answers.measured(("real:0", 0.5 if fails else 0.0), artifacts={"a": "d"}, nodes=5)

    ctx = answers.context(check=check, params={"until": until}, problem={"artifacts": ["a", "b"]})
    done = walk("repeat", ctx, answer)
    outcome, rows = done.finish.outcome, done.finish.tables["iterations"]
    assert [row["verdict"][0] for row in rows] == list(asked)
    assert [row["iteration"] for row in rows] == list(range(len(asked)))
    assert all(row["artifacts"] == {"a": "d"} for row in rows)
    assert (outcome.builds, outcome.builds - outcome.failures, outcome.failures) == (
        len(asked),
        asked.count("p"),
        asked.count("f"),
    )
    assert outcome.behaviour == behaviour
    assert check or asked_for == list(range(len(asked))), (
        "the first of them is the first that is built at all"
    )


def test_repeat_until_takes_what_does_not_build_for_a_failure(answers: Any, walk: Any) -> None:
    def answer(probe: Any) -> Measurement:
        if probe.attempt == 1:
            return Measurement(status="build-failed", message="no kernel")
        return answers.measured(("real:0", 0.0))

    done = walk("repeat", answers.context(params={"until": "bad"}), answer)
    assert [row["verdict"] for row in done.finish.tables["iterations"]] == ["pass", "fail"]


def test_repeat_until_is_refused_where_nothing_can_be_judged(answers: Any, walk: Any) -> None:
    never = Measurement(status="reference-failed", message="The reference cannot run it.")
    with pytest.raises(StepRefused, match="The reference cannot run it"):
        walk("repeat", answers.context(params={"until": "3"}), lambda _: never)


def test_repeat_until_gives_up(answers: Any, walk: Any) -> None:
    params = {"until": "bad", "most_builds": 4}
    done = walk(
        "repeat",
        answers.context(check="c", params=params),
        lambda p: Measurement(facts={"returncode": 0}),
    )
    assert (done.finish.outcome.builds, done.finish.outcome.failures) == (4, 0)
    assert "None was bad in the 4 that are allowed." in done.finish.outcome.message


def test_repeat_until_counts_what_gave_no_answer(answers: Any, walk: Any) -> None:
    ctx = answers.context(check="c", params={"until": "3"})
    done = walk(
        "repeat",
        ctx,
        lambda p: Measurement(facts={"returncode": 0, "signal": 11 * (p.attempt == 1)}),
    )
    assert [row["verdict"] for row in done.finish.tables["iterations"]] == [
        "pass",
        "unresolved",
        "pass",
    ]
    assert (done.finish.outcome.builds, done.finish.outcome.failures) == (2, 0)


@pytest.mark.parametrize("until", ["soon", "0", "-3", "1.5", "²"])
def test_repeat_until_what(answers: Any, walk: Any, until: str) -> None:
    with pytest.raises(StepRefused, match="neither good nor bad") as refused:
        walk("repeat", answers.context(check="c", params={"until": until}), answers.opening)
    assert refused.value.code == 2


def test_checks_run_where_the_user_stood_and_keep_what_was_named(answers: Any, walk: Any) -> None:
    """Whatever step asks, and in what a replay measures again."""
    findings = msgspec.structs.replace(
        locked(answers), signature=Signature(kind="check", sample="real:0")
    )
    index = CHAIN

    def answer(probe: Any) -> Any:
        if isinstance(probe, Describe):
            return Described(index, Measurement())
        assert (probe.folder, probe.artifacts[-1]) == ("/home/user", "a.txt")
        nodes = probe.candidate.nodes
        return Measurement(facts={"returncode": int(nodes == "*" or 1 in decode(nodes))})

    problem = {"folder": "/home/user", "artifacts": ["a.txt"]}
    done = walk("reduce", answers.context(findings, check="c", problem=problem), answer)
    assert done.finish.outcome.nodes_after == 1
    rows = done.finish.tables["iterations"]
    assert [row["iteration"] for row in rows] == list(range(len(rows)))
    checks = [
        msgspec.structs.replace(p, exclusive=False) for p in done.probes if isinstance(p, Check)
    ]
    assert len(rows) == len(dict.fromkeys(checks))
    (case,) = done.finish.decisive["case"]
    assert (case.folder, case.artifacts) == ("/home/user", ("a.txt",))


# -- nondeterminism

CHAIN = GraphIndex(
    "m",
    tuple(
        Node(i, f"n{i}", op, "", (i,), (i + 1,)) for i, op in enumerate(("Cos", "ScatterND", "Sin"))
    ),
    tuple(
        Tensor(i, "xabcy"[i] if i < 3 else "y", "float32", "node" if i else "input", i - 1, (2,), 8)
        for i in range(4)
    ),
    (0,),
    (3,),
)


def test_the_first_tensor_that_differs_is_named(answers: Any, walk: Any) -> None:
    def scores(*wrong: str) -> SampleResult:
        def score(name: str) -> Score:
            return Score(name, rel_l2=0.5 if name in wrong else 0.0)

        return SampleResult("real:0", (score("y"),), marks=tuple(score(n) for n in "ab"))

    def answer(probe: Any) -> Any:
        if isinstance(probe, Describe):
            return Described(CHAIN, Measurement())
        if parse(probe.engine).get("threads") == "1":
            return answers.measured(("real:0", 0.0), facts={"runs": probe.runs})
        return Measurement(
            results=(scores(),),
            runs=((scores("b", "y"),), (scores("b", "y"),)),
            facts={"runs": probe.runs},
            varies=True,
        )

    context = answers.context(
        locked(answers, **often()), engine="onnxruntime", info={"options": [{"name": "threads"}]}
    )
    done = walk("nondeterminism", context, answer)
    outcome = done.finish.outcome
    assert (
        outcome.nondeterministic,
        outcome.first_tensor,
        outcome.first_node,
        outcome.first_op,
    ) == (
        True,
        "b",
        "n1",
        "ScatterND",
    )
    assert (outcome.failures, outcome.runs) == (2, 100)
    assert [s.node for s in done.finish.findings.suspects] == [1]
    assert all(p.exclusive for p in done.probes if isinstance(p, Measure))


def test_nothing_differs(answers: Any, walk: Any) -> None:
    def answer(probe: Any) -> Any:
        same = SampleResult("real:0", (Score("y", rel_l2=0.5),), marks=(Score("a"), Score("b")))
        return (
            Described(CHAIN, Measurement())
            if isinstance(probe, Describe)
            else Measurement(results=(same,), facts={"runs": probe.runs})
        )

    outcome = walk("nondeterminism", answers.context(locked(answers)), answer).finish.outcome
    assert (outcome.nondeterministic, outcome.first_tensor) == (False, "")


# -- tactics

NAMES = ("Alpha", "Beta", "ConstantFolding", "Delta", "Epsilon", "Zeta", "Eta", "Theta")


def switched(answers: Any, fails: Any) -> Any:
    """``fails(on)``: whether the model fails with these optimizers on."""

    def answer(probe: Any) -> Measurement:
        off = set(filter(None, parse(probe.engine).get("disabled_optimizers").split("+")))
        return answers.measured(("real:0", 0.5 if fails(set(NAMES) - off) else 0.0))

    return answer


def optimizers(answers: Any, walk: Any, fails: Any, engine: str = "onnxruntime") -> Any:
    context = answers.context(
        locked(answers),
        engine=engine,
        capabilities={"optimizers": answers.PRESENT},
        info={"optimizers": NAMES},
    )
    return walk("tactics", context, switched(answers, fails))


@pytest.mark.parametrize("name", ["Alpha", "Delta", "Theta"])
def test_one_guilty_optimizer(answers: Any, walk: Any, name: str) -> None:
    done = optimizers(answers, walk, lambda on: name in on)
    outcome = done.finish.outcome
    assert (outcome.found, outcome.suspects, outcome.necessary, outcome.sufficient) == (
        True,
        name,
        True,
        True,
    )
    assert done.finish.findings.optimizers == (name,)
    assert len(done.probes) <= 12
    (off,) = done.finish.decisive["suspect-off"]
    assert parse(off.engine).get("disabled_optimizers") == name


def test_an_enabler_is_named_as_such(answers: Any, walk: Any) -> None:
    outcome = optimizers(
        answers, walk, lambda on: {"Delta", "ConstantFolding"} <= on
    ).finish.outcome
    assert (outcome.suspects, outcome.enablers) == ("Delta", "ConstantFolding")


def test_two_that_can_stand_in_for_each_other(answers: Any, walk: Any) -> None:
    outcome = optimizers(answers, walk, lambda on: "Alpha" in on or "Theta" in on).finish.outcome
    assert (outcome.found, outcome.necessary, outcome.sufficient) == (True, True, True)
    assert set(outcome.suspects.split(", ")) == {"Alpha", "Theta"}


def test_no_optimizer_is_to_blame(answers: Any, walk: Any) -> None:
    done = optimizers(answers, walk, lambda on: True)
    assert (done.finish.outcome.found, done.finish.outcome.kind) == (False, "none")
    assert done.finish.findings.optimizers == ()


def test_what_the_user_had_off_stays_off(answers: Any, walk: Any) -> None:
    done = optimizers(
        answers, walk, lambda on: "Delta" in on, "onnxruntime:disabled_optimizers=Beta"
    )
    assert all("Beta" in parse(p.engine).get("disabled_optimizers").split("+") for p in done.probes)


def test_engines_without_switches_say_why(answers: Any, walk: Any) -> None:
    done = walk(
        "tactics",
        answers.context(locked(answers), capabilities={"optimizers": answers.ABSENT}),
        None,
    )
    assert not done.probes
    assert done.finish.outcome.message == "No optimizers can be searched: it cannot."


# -- double-check


@pytest.mark.parametrize(
    ("unresolved", "check", "helps"),
    [
        ({}, "", "tolerance"),
        ({"build-failed": 4, "harmless": 2}, "", "search"),
        ({"harmless": 3}, "", "metric"),
        ({"unrepresentable-input": 3}, "", "sample"),
        ({"harmless": 3}, "check.py", "regex"),
    ],
)
def test_the_commonest_reason_names_what_helps(
    answers: Any, walk: Any, unresolved: Any, check: str, helps: str
) -> None:
    done = walk(
        "double-check",
        answers.context(locked(answers), check=check, settings={"unresolved": unresolved}),
        None,
    )
    outcome = done.finish.outcome
    assert f"Changing the {helps} would help most" in outcome.message
    assert (outcome.unresolved, outcome.visits_left) == (sum(unresolved.values()), 2)


def test_with_nobody_there_another_search_is_tried_once(answers: Any, walk: Any) -> None:
    """A value (a tolerance, a metric) needs a person; the recommendation must not repeat the same
    search for ever."""

    def suggested(visit: int, **settings: Any) -> str:
        done = walk(
            "double-check", answers.context(locked(answers), visit=visit, settings=settings), None
        )
        return str(done.finish.outcome.suggestion)

    assert suggested(1) == "linear"
    assert suggested(2, search="linear") == "stop"
    assert suggested(3) == "stop"


def test_what_stood_in_the_way_is_said_in_words_and_no_case_is_left(
    answers: Any, walk: Any
) -> None:
    case = Case(candidate=Candidate(nodes="1"), sample="real:0")
    found = msgspec.structs.replace(locked(answers), case=case)
    settings = {"unresolved": {"milder": 2, "crash": 1}}
    done = walk("double-check", answers.context(found, visit=2, settings=settings), None)
    why = "2 with an error far below the whole model's, 1 that crashed the engine"
    said = f"3 parts of the model neither passed nor failed: {why}. Changing the tolerance would help most."
    assert done.finish.outcome.message == f"{said} Tries left: 1."
    assert done.finish.findings.case is None


def test_a_model_that_passes_under_the_new_settings_is_not_searched_again(
    answers: Any, walk: Any
) -> None:
    found = msgspec.structs.replace(locked(answers), signature=None)
    done = walk(
        "double-check", answers.context(found), lambda _probe: answers.measured(("real:0", 0.0))
    )
    assert done.finish.outcome.suggestion == "stop"
    assert "the whole model passes" in done.finish.outcome.message
