"""known: looking alike is no proof; the bug's own construction is asked, and its switch."""

import msgspec
import pytest
from onnx import TensorProto, helper

from narrowdown.engines.asking import Described, Note, StepContext
from narrowdown.engines.compare.judge import Criterion, Signature
from narrowdown.engines.findings import Findings
from narrowdown.engines.graph.load import build_index
from narrowdown.engines.known.construct import construct
from narrowdown.engines.known.entry import Bug, Construction
from narrowdown.engines.known.table import read_table
from narrowdown.engines.known.variant import vary_declared
from narrowdown.engines.probe import (
    Construct,
    Describe,
    Measure,
    Measurement,
    Recall,
    SampleInfo,
    SampleResult,
    Score,
)
from narrowdown.engines.steps.known import SPEC, KnownOutcome
from narrowdown.engines.views import Capability, EngineInfo

BUG = next(bug for bug in read_table() if bug.id == "ort-pad-maxpool-fusion")


def last(end: StopIteration) -> KnownOutcome:
    """The outcome, whose bug is in the findings."""
    finish = end.value
    assert [like.bug for like in finish.findings.lookalikes] == [
        b for b in (finish.outcome.bug,) if b
    ]
    outcome: KnownOutcome = finish.outcome
    return outcome


def walk(
    *, shown: float, cured: float, fires: float = 1.0, beside: float = 0.0, version: str = "1.31.1", like: bool = True,
    bug: Bug = BUG, dying: int = 0,
) -> KnownOutcome:  # fmt: skip
    """What the step ends with where the construction is off by ``shown``, with what fires by
    ``fires``, ``beside`` it so, and the model without the switch by ``cured``. ``dying``: so many
    variants that fire kill the engine."""
    made = bug.make
    assert made is not None
    of = [(made, "made")]
    errors = {"made": shown}
    for wanted, variants in ((fires, bug.fires), (beside, bug.beside)):
        for n, variant in enumerate(variants):
            name = f"{'fires' if variants is bug.fires else 'beside'}-{n}"
            of.append((vary_declared(made, variant), name))
            errors[name] = -1.0 if variants is bug.fires and n < dying else wanted
    plain = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])],
    )
    index = build_index(construct(made) if like else helper.make_model(plain), "m")
    findings = Findings(
        model="m",
        inputs="i",
        sample="real:0",
        samples=(SampleInfo("real:0", "real"),),
        criterion=Criterion(),
        signature=Signature("accuracy", "real:0", ("y",), {"y": 1.0}),
    )
    view = EngineInfo(
        version=version,
        capabilities={"optimizers": Capability(True)},
        optimizers=("Pad_Fusion", "ConstantFolding"),
    )
    step = SPEC.run(
        StepContext("onnxruntime", "onnxruntime:optimization=off", findings, engine_info=view)
    )
    answer: Measurement | Described | None = None
    while True:
        try:
            asked = step.send(answer)
        except StopIteration as end:
            return last(end)
        match asked:
            case Note():
                answer = None
            case Describe():
                answer = Described(index, Measurement())
            case Recall():
                ops = {n.op for n in index.nodes}
                fit = [bug] if ops.issuperset({"Pad", "MaxPool"}) else []
                answer = Measurement(facts={"bugs": msgspec.to_builtins(fit)})
            case Construct():
                declared = msgspec.json.decode(asked.declared, type=Construction)
                name = next(name for made, name in of if made == declared)
                drawn = {"inputs": "drawn", "samples": ["real:0"]}
                answer = Measurement(facts={"model": name, **drawn})
            case Measure():
                assert (asked.model in errors) == (asked.reference == "reference")
                assert (
                    asked.model in errors
                    or asked.engine == "onnxruntime:disabled_optimizers=Pad_Fusion"
                )
                error = errors.get(asked.model, cured)
                if error < 0:
                    answer = Measurement(status="crash")
                    continue
                answer = Measurement(results=(SampleResult("real:0", (Score("y", rel_l2=error),)),))
            case _:
                raise AssertionError(asked)


@pytest.mark.parametrize(
    ("shown", "cured", "verdict", "said"),
    [
        (1.0, 0.0, "known", "It is a known bug, microsoft/onnxruntime#18136"),
        (0.0, 0.0, "looks-like", "passes here"),
        (1.0, 1.0, "looks-like", "does not fix this model"),
    ],
)
def test_it_is_called_known_where_it_shows_here_and_its_switch_cures(
    shown: float, cured: float, verdict: str, said: str
) -> None:
    outcome = walk(shown=shown, cured=cured)
    assert outcome.verdict == verdict
    assert said in outcome.message
    assert outcome.bug == BUG.id
    assert outcome.confirmed == (verdict == "known")


@pytest.mark.parametrize(
    ("fires", "beside", "verdict", "said"),
    [
        (1.0, 0.0, "known", "Its small model fails in 5 of 5 variants, not in 4 of 4 beside it."),
        (
            0.0,
            0.0,
            "looks-like",
            "not when the table says so: with x.shape = [2, 1, 4, 4] it passes",
        ),
        (1.0, 1.0, "looks-like", "with Pad mode = edge it fails, too"),
        (
            -1.0,
            0.0,
            "looks-like",
            "when it does and when not is not in the table",
        ),  # the engine dies on each: no answer
        (1.0, -1.0, "looks-like", "when it does and when not is not in the table"),
    ],
)
def test_it_is_called_known_only_where_its_own_trigger_holds(
    fires: float, beside: float, verdict: str, said: str
) -> None:
    outcome = walk(shown=1.0, cured=0.0, fires=fires, beside=beside)
    assert outcome.verdict == verdict
    assert said in outcome.message
    assert outcome.confirmed == (verdict == "known")


def test_a_variant_that_the_engine_does_not_run_is_no_answer() -> None:
    outcome = walk(shown=1.0, cured=0.0, dying=2)
    assert outcome.verdict == "known"
    assert outcome.trigger == "fails in 3 of 3 variants, not in 4 of 4 beside it"


def test_without_a_trigger_in_the_table_it_only_looks_like_it() -> None:
    bare = msgspec.structs.replace(BUG, fires=(), beside=())
    assert walk(shown=1.0, cured=0.0, bug=bare).verdict == "looks-like"


def test_what_looks_like_nothing_is_told_so_and_nothing_is_run() -> None:
    outcome = walk(shown=1.0, cured=0.0, like=False)
    assert outcome.verdict == "none"
    assert "none of the bugs of onnxruntime" in outcome.message


def test_a_bug_without_a_thread_is_named_by_its_id() -> None:
    bare = msgspec.structs.replace(BUG, thread="")
    said = walk(shown=1.0, cured=0.0, bug=bare).message
    assert "It is a known bug, ort-pad-maxpool-fusion (no thread known): " in said
