"""Every end of the flow, reached by a real session: its exit code, what the screen says, what the
report says."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest

from narrowdown.engines.compare.say import say_percent, say_sample, wrong_by
from narrowdown.wizard.report.canonical import canonical
from narrowdown.wizard.report.document import to_json
from narrowdown.wizard.report.html import to_html
from narrowdown.wizard.report.markdown import to_markdown
from narrowdown.wizard.report.portable import handed_on
from narrowdown.wizard.report.summary import summary
from narrowdown.wizard.session import folder as folders

from . import tiny
from .conftest import Walk, Walked, command, environment


class End(msgspec.Struct, frozen=True):
    """``words`` gives the command line in a folder; ``said`` is on the screen and in every report;
    ``exports``: whether there is a case to hand on."""

    end: str
    verdict: str
    code: int
    words: Callable[[Path], list[str | Path]]
    said: tuple[str, ...]
    headline: str
    exports: bool = False


def not_reproduced(folder: Path) -> list[str | Path]:
    return [tiny.faultless(folder), "--engine", "emulate"]


def reference_suspect(folder: Path) -> list[str | Path]:
    pytest.importorskip("openvino")
    return [
        tiny.norm(folder),
        "--engine",
        "onnxruntime",
        "--reference",
        "fake:fault=wrong,ops=Sqrt",
    ]


def not_determined(folder: Path) -> list[str | Path]:
    model, inputs = tiny.instance_norm(folder)
    return [model, "--inputs", inputs, "--engine", "reference"]


def fixed_by_sanitizing(folder: Path) -> list[str | Path]:
    return [tiny.constant_chain(folder), "--engine", "emulate"]


def minimal_case(folder: Path) -> list[str | Path]:
    pytest.importorskip("openvino")
    return [tiny.absolute_sum(folder), "--engine", "openvino"]


def worked_around(folder: Path) -> list[str | Path]:
    return [tiny.two_norms(folder), "--inputs", tiny.rows(folder), "--engine", "emulate"]


def unresolved(folder: Path) -> list[str | Path]:
    dies = f"{sys.executable} -c 'import os; os.kill(os.getpid(), 11)' {{model}}"
    return [tiny.faultless(folder), "--check", dies]


ENDS = [
    End(
        "not-reproduced", "not-reproduced", 10, not_reproduced,
        ("Only one made-up input was tried. Give real ones: --inputs", "300 runs, no failure.", "below what is allowed (1 %"),
        "It does not fail here",
    ),
    End(
        "reference-suspect", "reference-suspect", 13, reference_suspect,
        ("agree against it", "The engine is right by Narrowdown's evaluator in float64", "before blaming the engine"),
        "The reference itself is suspect",
    ),
    End(
        "not-determined", "not-determined", 15, not_determined,
        ("changing the inputs by one rounding step moves it by", "no node is at fault", "--metric max_abs"),
        "Not determined to this tolerance",
    ),
    End(
        "fixed-by-sanitizing", "fixed-by-sanitizing", 12, fixed_by_sanitizing,
        ("4 nodes became 2", "narrowdown step sanitize"), "Cleaning the model up fixed it",
    ),
    End(
        "case-found", "minimal-case", 0, minimal_case,
        ("/sum (ReduceL1) gives an output of another shape than the reference's.",),
        "1 of 3 nodes fails: /sum (kernel)", exports=True,
    ),
    End(
        "worked-around", "worked-around", 0, worked_around,
        ("/sum (ReduceSum) reaches ", "float16 ends at 65,504"),
        "1 of 8 nodes fails: /sum (overflow); keeping 3 nodes in higher precision makes 36 of 36 tuning samples "
        "and 32 of 32 held-out samples right", exports=True,
    ),
    End(
        "unresolved", "unresolved", 6, unresolved,
        ("The check gives no answer on the whole model (the check died of signal 11).", "what stood in the way"),
        "No answer that could be proven",
    ),
]  # fmt: skip


@pytest.fixture(params=ENDS, ids=lambda end: end.end)
def reached(request: pytest.FixtureRequest, walk: Walk, models: Path) -> tuple[End, Walked]:
    return request.param, walk(*request.param.words(models))


def flat(text: str) -> str:
    """Without the marks of Markdown and HTML, and the breaks of lines."""
    for mark, plain in (("\\", ""), ("`", ""), ("&#39;", "'"), ("<code>", ""), ("</code>", "")):
        text = text.replace(mark, plain)
    return " ".join(text.split())


def test_an_end_and_how_it_reads_everywhere(reached: tuple[End, Walked]) -> None:
    end, walked = reached
    ran, reading = walked.ran, walked.reading
    assert ran.code == end.code, ran.out[-2000:] + ran.err
    state = reading.state
    assert (state.end, state.closed.exit_code) == (end.end, end.code)
    assert all(v.answer == v.question.recommended and v.by == "recommended" for v in state.route)

    report = reading.report()
    as_json = json.loads(to_json(report))
    assert (as_json["verdict"], as_json["end"], as_json["headline"]) == (
        end.verdict,
        end.end,
        end.headline,
    )
    page, text = to_html(report), to_markdown(report)
    assert (walked.folder / "report.html").read_text() == to_html(handed_on(reading))
    for sentence in (end.headline, *end.said):
        assert sentence in flat(page), sentence
        assert sentence in flat(text), sentence
    assert end.verdict in text
    assert "{{" not in page + text
    screen = flat(ran.out)
    for sentence in end.said:
        assert sentence in screen, sentence
    last = "\n".join(summary(report))
    assert last.startswith(end.headline)
    assert f"end: {end.end} ({end.verdict})\n" in canonical(state, reading.flow)
    assert folders.summary(walked.folder).verdict == end.verdict


def test_a_workaround_says_where_its_model_lies(reached: tuple[End, Walked]) -> None:
    """``file`` of a report, beside it in the session: there exactly where a model was written."""
    cure = reached[1].reading.report().workaround
    written = (reached[1].folder / "worked-around.onnx").is_file()
    assert (cure.file if cure else "") == ("worked-around.onnx" if written else "")
    if written:
        assert cure is not None
        assert cure.accused_inside is True
        assert (cure.held_out_ok, cure.held_out_n) == (cure.unseen_ok, cure.unseen_n)


def test_every_recommendation_says_why_with_numbers(reached: tuple[End, Walked]) -> None:
    for visit in reached[1].reading.state.route:
        assert visit.question is not None
        assert any(c.isdigit() for c in visit.question.because), (
            visit.node,
            visit.question.because,
        )


def test_only_a_case_can_be_handed_on(reached: tuple[End, Walked], tmp_path: Path) -> None:
    end, walked = reached
    assert (walked.folder / "case" / "check.py").is_file() == end.exports
    report = walked.reading.report()
    assert bool(report.culprits) == bool(report.nodes) == end.exports
    assert (report.margin is None) == (end.end != "not-reproduced")


def test_show_and_report_and_export_by_command(walk: Walk, models: Path, tmp_path: Path) -> None:
    narrowdown = command(environment(tmp_path), tmp_path)
    place = walk(*not_reproduced(models)).folder
    shown = narrowdown("show", place)
    assert shown.code == 0
    assert "reproduce        No, it could not be shown" in shown.out
    assert (
        "It does not fail here\n  Only one made-up input was tried. Give real ones: --inputs"
        in shown.out
    )
    assert narrowdown("report", place, "--format", "json").json()["verdict"] == "not-reproduced"
    refused = narrowdown("export", place, "-o", tmp_path / "case")
    assert refused.code == 6
    assert "found no failing case" in refused.err


def test_the_way_to_each_end(walk: Walk, models: Path) -> None:
    assert walk(*fixed_by_sanitizing(models)).answers() == [
        ("reproduce", "yes"),
        ("sanitize", "no"),
    ]
    assert walk(*worked_around(models)).answers()[-3:] == [
        ("extract", "yes"), ("minimal-case", "workaround"), ("workaround", "yes"),
    ]  # fmt: skip


@pytest.mark.slow
def test_the_clean_model_is_written_as_the_end_says(
    narrowdown, models: Path, tmp_path: Path
) -> None:
    out = tmp_path / "clean.onnx"
    ran = narrowdown("step", "sanitize", *fixed_by_sanitizing(models), "-o", out, "--json")
    assert ran.code == 0, ran.err
    assert ran.json()["verdict"] == "passes"
    assert narrowdown("run", out, "--engine", "emulate", "--display", "none").code == 10


def test_a_fault_that_engine_and_reference_share(walk: Walk, models: Path) -> None:
    """Against ONNX Runtime alone it passes; two others agree against both, and one of them stands
    in."""
    pytest.importorskip("openvino")
    same = "fake:fault=wrong,ops=Sqrt"
    done = walk(tiny.norm(models), "--engine", same, "--reference", same)
    assert done.ran.code == 0, done.ran.err
    told = json.loads(to_json(done.reading.report()))
    assert told["nodes"] == ["/length"]
    assert told["alike"] is True
    assert told["reference_replaced"]["from"] == same
    assert told["reference_replaced"]["to"] == "reference:precision=fp64"
    assert "The engine is wrong in the same way." in told["explanation"]


# -- a control without a fault ------------------------------------------------------------------------------------------

ENGINES = {
    "onnxruntime:optimization=disabled": "fp32",
    "onnxruntime:optimization=all": "fp32",
    "reference": "fp32",
    "reference:precision=fp16": "fp16",
    "reference:precision=bf16": "bf16",
    "reference:precision=fp64": "fp64",
    "emulate:precision=fp16": "fp16",
    "emulate:precision=bf16": "bf16",
    "openvino:precision=f32": "fp32",
    "openvino:precision=bf16": "bf16",
}
FAST = ("emulate:precision=bf16",)
ALLOWED = {"fp32": 1e-4, "fp64": 1e-4, "fp16": 1e-2, "bf16": 5e-2}


@pytest.mark.parametrize(
    "engine",
    [pytest.param(e, marks=[] if e in FAST else [pytest.mark.slow]) for e in ENGINES],
    ids=str,
)
def test_a_faultless_model_under_every_engine(walk: Walk, models: Path, engine: str) -> None:
    if engine.startswith("openvino"):
        pytest.importorskip("openvino")
    inputs = tiny.feeds(models / "control.npz", x=tiny.weights(2, 16, seed=7))
    walked = walk(tiny.faultless(models), "--inputs", inputs, "--engine", engine)
    assert walked.ran.code == 10, walked.ran.out
    outcome = walked.visits("reproduce")[0].outcome
    precision = ENGINES[engine]
    assert (outcome["verdict"], outcome["precision"], outcome["tolerance"]) == (
        "passes",
        precision,
        ALLOWED[precision],
    )
    assert outcome["error"] < ALLOWED[precision]
    assert outcome["reference_error"] is not None, (
        "the reference is judged, also where rows cannot be fed alone"
    )
    report = walked.reading.report()
    assert report.error == outcome["error"]
    if outcome["error"] == 0:
        assert "Nothing differs by rel_l2; allowed" in report.explanation
    else:
        assert report.margin == pytest.approx(ALLOWED[precision] / outcome["error"])
        near = "more than 1000" if report.margin > 1000 else f"{report.margin:.3g}"
        nearest = (
            f"The worst is y on {say_sample(report.worst_sample)}, {wrong_by(report.error, 'rel_l2')}: "
            f"{near} times below what is"
        )
        assert f"{nearest} allowed" in report.explanation
        assert (
            f"{nearest} allowed ({say_percent(ALLOWED[precision])} for {precision.upper()})"
            in walked.ran.said
        )
        assert report.worst_sample.partition("/")[0] in ("real:0", "random:0")
    assert "nearest to failing" in to_markdown(report)
    assert "nearest to failing" in to_html(report)


def test_a_faultless_model_under_a_checker(walk: Walk, models: Path) -> None:
    command = f"{sys.executable} -c 'import sys; sys.exit(0)' {{model}}"
    walked = walk(tiny.faultless(models), "--check", command)
    assert walked.ran.code == 10, walked.ran.out
    assert "The check passes on the whole model (exit code 0)." in walked.ran.out
    assert walked.reading.report().verdict == "not-reproduced"


def test_a_checker_that_passes_nothing_tells_nothing(walk: Walk, models: Path) -> None:
    """Its last lines say why: no case, no culprit, no search."""
    command = "sh -c 'echo one; echo two; echo three; echo no GPU >&2; exit 1' sh {model}"
    walked = walk(tiny.faultless(models), "--check", command)
    assert walked.ran.code == 6, walked.ran.out
    assert "It does not pass a model that only hands its inputs on either" in walked.ran.said
    assert "It last printed: two | three | no GPU" in walked.ran.said
    assert "It last printed: two | three | no GPU" in walked.ran.err
    assert [v.node for v in walked.reading.state.route] == ["reproduce"]
    report = walked.reading.report()
    assert (report.verdict, report.culprits) == ("unresolved", ())
    assert not (walked.folder / "case").exists()


NEEDS_ITS_OUTPUT = """
import sys
import onnx
model = onnx.load(sys.argv[1])
(y,) = [output for output in model.graph.output if output.name == "y"]
sys.exit("wrong" if any(node.op_type == "Softmax" for node in model.graph.node) else 0)
"""


@pytest.mark.slow
def test_a_checker_that_asks_for_the_model_s_own_outputs_passes_the_reference_s(
    walk: Walk, models: Path
) -> None:
    """It cannot read what hands the inputs on; right answers under the right names it can."""
    checker = models / "needs_its_output.py"
    checker.write_text(NEEDS_ITS_OUTPUT)
    command = f"{sys.executable} {checker} {{model}} {{inputs}}"
    walked = walk(
        tiny.faultless(models), "--check", command, answers="sanitize: 'stuck'\nreduce: 'yes'\n"
    )
    assert walked.visits("reproduce")[0].outcome["verdict"] == "fails", walked.ran.out
    journal = map(json.loads, (walked.folder / "journal.jsonl").read_bytes().splitlines())
    probes = [event["probe"] for event in journal if event["kind"] == "probe.started"]
    assert [p["control"] for p in probes if "control" in p] == ["identity", "answers"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--metric", "sqnr_db"], "dB (sqnr_db): 2"),
        (["--atol", "1e-2", "--rtol", "1e-2"], "times what atol and rtol allow"),
    ],
)
def test_how_near_is_said_in_the_words_of_the_metric(
    walk: Walk, models: Path, words: list[str], said: str
) -> None:
    walked = walk(*not_reproduced(models), *words)
    assert walked.ran.code == 10
    assert said in walked.reading.report().explanation


# -- sanitizing: helps, hurts, fails -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_sanitizing_that_helps_and_does_not_cure(walk: Walk, models: Path) -> None:
    walked = walk(tiny.half_constant(models), "--engine", "emulate")
    visit = walked.visits("sanitize")[0]
    assert (visit.answer, visit.outcome["goes_on"]) == ("yes", "sanitized")
    assert visit.findings.model != visit.findings.original
    assert visit.outcome["error"] < visit.outcome["error_before"]
    assert "it still fails. It is wrong by" in visit.question.because
    assert walked.reading.report().nodes == ("/sum",)


def test_sanitizing_that_hurts_goes_on_with_the_original(walk: Walk, models: Path) -> None:
    model, inputs = tiny.two_fusions(models)
    engine = "onnxruntime:optimization=all,disabled_optimizers=ConstantFolding"
    walked = walk(model, "--inputs", inputs, "--engine", engine)
    visit = walked.visits("sanitize")[0]
    assert (visit.answer, visit.outcome["goes_on"]) == ("yes", "original")
    assert visit.findings.model == visit.findings.original
    assert "it makes the error larger (wrong by 9" in visit.question.because
    report = walked.reading.report()
    assert report.workaround.switched_off == ("DivMulFusion",), (
        "the original's own fault, not the one that folding uncovers"
    )
    assert sorted(report.culprits[0].ops) == ["Div", "Mul"]
    assert walked.visits("real-inputs")[0].answer == "no", (
        "the model takes no random inputs: nothing passes on them"
    )


def test_a_model_that_cannot_be_sanitized(walk: Walk, models: Path) -> None:
    model, inputs = tiny.optional(models)
    walked = walk(model, "--inputs", inputs, "--engine", "emulate")
    visit = walked.visits("sanitize")[0]
    assert (visit.answer, visit.outcome["verdict"]) == ("stuck", "could-not")
    assert visit.question.because.startswith(
        "The model could not be sanitized: ONNX-GraphSurgeon fails on it ("
    )
    assert "The search goes on with the model as you gave it." in visit.question.because
    assert visit.findings.model == visit.findings.original
    assert walked.ran.code == 0
    assert walked.reading.report().nodes == ("/squares",)


@pytest.mark.slow
def test_a_person_may_refuse_the_sanitized_model(walk: Walk, models: Path) -> None:
    words = [tiny.half_constant(models), "--engine", "emulate"]
    walked = walk(*words, answers="sanitize: stuck\nminimal-case: report\n")
    assert (
        walked.visits("sanitize")[0].findings.model
        != walked.visits("real-inputs")[0].findings.model
    )
    found = walked.visits("real-inputs")[0].findings
    assert found.model == found.original
    assert walked.reading.report().verdict == "minimal-case"


# -- real and random inputs: four answers --------------------------------------------------------------------------------


def side_by_side(
    walk: Walk, folder: Path, real: tuple[float, float] | None, random: str, *more: str
) -> Walked:
    words: list[str | Path] = [
        tiny.norm(folder),
        "--val-range",
        f"x:{random}",
        "--engine",
        "emulate",
        *more,
    ]
    if real is not None:
        low, high = real
        values = low + (high - low) * np.random.default_rng(1).random((2, 64), np.float32)
        words += [
            "--inputs",
            tiny.feeds(folder / f"real-{high:g}.npz", x=values.astype(np.float32)),
        ]
    return walk(*words)


@pytest.mark.parametrize(
    ("real", "random", "answer", "code", "said"),
    [
        pytest.param(
            None,
            "[0,255]",
            "none",
            0,
            "Real inputs: none. Random inputs: 2 of 2 fail.",
            marks=pytest.mark.slow,
        ),
        ((0, 255), "[0,1]", "only-real", 0, "Real inputs: 2 of 2 fail."),
        pytest.param(
            (0, 255), "[0,255]", "no", 0, "Real inputs: 2 of 2 fail.", marks=pytest.mark.slow
        ),
    ],
    ids=["none", "real only", "both"],
)
def test_which_inputs_fail(
    walk: Walk,
    models: Path,
    real: tuple[float, float] | None,
    random: str,
    answer: str,
    code: int,
    said: str,
) -> None:
    walked = side_by_side(walk, models, real, random)
    visit = walked.visits("real-inputs")[0]
    assert (visit.answer, walked.ran.code) == (answer, code), walked.ran.out
    assert visit.question.because.startswith(said)
    assert flat(said) in flat(walked.ran.out)
    report = walked.reading.report()
    if code == 0:
        assert report.culprits[0].sample.startswith("random:" if real is None else "real:")
        assert report.nodes == ("/sum",)
    if answer == "none":
        assert "only made-up inputs were tried" in visit.question.because


def test_a_made_up_sample_that_fails_decides_nothing_where_real_ones_pass(
    walk: Walk, models: Path
) -> None:
    """Of 24 healthy models of strangers four were told to be sensitive to their inputs, and CI
    failed."""
    walked = side_by_side(walk, models, (0, 1), "[0,255]", "--expect", "pass")
    assert (walked.ran.code, walked.answers()) == (0, [("reproduce", "no")])
    outcome = walked.visits("reproduce")[0].outcome
    assert (outcome["verdict"], outcome["samples"], outcome["samples_failing"]) == ("passes", 2, 0)


def test_noise_of_made_up_data_alone_does_not_decide(walk: Walk, models: Path) -> None:
    model, _ = tiny.instance_norm(models)
    real = tiny.feeds(
        models / "spread.npz",
        x=np.random.default_rng(0).normal(size=(1, 3, 32, 32)).astype(np.float32),
    )
    words = [model, "--engine", "reference", "--val-range", "x:[1000,1000.02]"]
    alone = walk(*words)
    assert (alone.ran.code, alone.reading.state.end) == (15, "not-determined"), alone.ran.out
    given = walk(*words, "--inputs", real)
    assert (given.ran.code, given.reading.state.end) == (10, "not-reproduced"), given.ran.out
