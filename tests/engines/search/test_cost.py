"""Plans count, prices follow what was measured, and what nothing is known of stays unknown."""

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from narrowdown.engines.asking import StepContext
from narrowdown.engines.compare.criterion import Criterion, Signature
from narrowdown.engines.findings import Case, Culprit, Findings, Suspect, Workaround
from narrowdown.engines.graph.index import GraphIndex, Node, Tensor
from narrowdown.engines.probe import (
    Candidate,
    Check,
    Describe,
    Import,
    Inspect,
    Measure,
    Measurement,
    SampleInfo,
    Sanitize,
)
from narrowdown.engines.search import works as phrases
from narrowdown.engines.search.cost import (
    CUTTING,
    Cost,
    Kind,
    Plan,
    Size,
    Work,
    is_wide,
    settle_between,
)
from narrowdown.engines.search.prices import (
    BESIDE,
    BESIDE_IT,
    BESIDES,
    CUT,
    CUT_LATER,
    CUT_LATER_SPAN,
    CUT_LEAST,
    CUT_SPAN,
    CUT_TOLD,
    FELT,
    JOINED,
    LONGER,
    LOOKED,
    MEASURED,
    OTHERWISE,
    READ,
    SELDOM,
    TOLD,
    price_plan,
    price_work,
    span_work,
)
from narrowdown.engines.search.timings import Seen, classify_probe, collect_seen, count_rows
from narrowdown.engines.steps.confirm import REST, STANDS
from narrowdown.engines.steps.precision import (
    BUILT,
    BUILT_FEW,
    BUILT_MANY,
    DRAFTED,
    IN_FP32,
    ORDERS,
    TIMED_SPAN,
    TIMED_TIMES,
)
from narrowdown.engines.steps.registry import STEPS
from narrowdown.engines.steps.repeat import KEPT_SPAN
from narrowdown.engines.steps.sanitize import ANEW
from narrowdown.engines.views import Capability, EngineView, OptionView, view_engine

ENGINE, REFERENCE = "emulate:precision=fp16", "onnxruntime"
SAMPLES = (SampleInfo("real:0", "in.npz", rows=8), SampleInfo("real:1", "in.npz"))
KINDS: tuple[Kind, ...] = (
    "import",
    "read",
    "whole",
    "watched",
    "control",
    "other",
    "alone",
    "part",
    "effect",
    "check",
)
LOCKED = Findings(
    model="m", inputs="i", samples=SAMPLES, criterion=Criterion(tolerance=0.01, precision="fp16"),
    signature=Signature(kind="accuracy", sample="real:0/3"), sample="real:0/3",
)  # fmt: skip

works = st.builds(
    Work,
    st.sampled_from(KINDS),
    st.integers(0, 40),
    st.integers(0, 40),
    st.integers(1, 9),
    st.booleans(),
)
plans = st.builds(Plan, st.lists(works, max_size=5).map(tuple))


def context(findings: Findings, **rest: object) -> StepContext:
    return StepContext(engine=ENGINE, reference=REFERENCE, findings=findings, **rest)  # type: ignore[arg-type]


def measure(**rest: object) -> Measure:
    probe = Measure(
        model="m", inputs="i", samples=("real:0/3",), engine=ENGINE, reference=REFERENCE
    )
    return msgspec.structs.replace(probe, **rest)


@given(plans, st.integers(0, 300))
def test_a_plan_can_be_cut_and_prolonged(plan: Plan, n: int) -> None:
    assert plan.of(n).probes == n
    assert plan.of(n, first=True).probes == n
    assert plan.after(n).probes == max(0, plan.probes - n)
    if n <= plan.probes:
        kinds = [w.kind for w in plan.works for _ in range(w.probes)]
        assert [w.kind for w in plan.after(n).works for _ in range(w.probes)] == kinds[n:]


@given(
    plans,
    st.lists(
        st.builds(
            Seen,
            st.sampled_from(KINDS),
            st.integers(1, 40),
            st.integers(1, 9),
            st.floats(0.001, 99),
        )
    ),
)
def test_a_price_is_never_negative_and_known_only_by_measurement(
    plan: Plan, found: list[Seen]
) -> None:
    made = price_plan(plan, found)
    assert (made.probes, made.seconds >= 0 or made.seconds == -1) == (plan.probes, True)
    if not found and plan.probes:
        assert made.seconds == -1
    for work in plan.works:
        if any(s.kind == work.kind for s in found):
            assert price_work(work, found) is not None


def test_builds_and_runs() -> None:
    plan = Plan(
        (Work("read", 2), Work("whole", 3, rows=8, runs=5), Work("part", 4, rows=1)), disk=1000
    )
    made = price_plan(plan, [])
    assert (made.probes, made.builds, made.runs, made.seconds) == (9, 7, 3 * 8 * 5 + 4, -1.0)
    assert 1000 < made.disk < 1_000_000
    assert price_plan(msgspec.structs.replace(plan, disk=-1), []).disk == -1


def test_what_a_probe_takes_depends_on_its_rows_and_runs() -> None:
    found = [Seen("whole", 1, 1, 1.0, 0.5), Seen("whole", 9, 1, 9.0, 4.5)]
    assert price_work(Work("whole", 1, rows=1), found) == 1.0
    assert price_work(Work("whole", 2, rows=5), found) == 10.0  # half way between them, twice
    assert price_work(Work("whole", 1, rows=1, runs=11), found) == pytest.approx(1.0 + 10 * 0.5)
    # Four times the rows beyond the largest: in proportion, but for a tenth of a second.
    assert price_work(Work("whole", 1, rows=36), found) == pytest.approx(0.1 + 4 * 8.9)
    built = [Seen("whole", 9, 1, 9.0, 0.1, build_seconds=8.9)]
    assert price_work(Work("whole", 1, rows=36), built) == 18.0  # all of it a build: the root
    small = [Seen("whole", 1, 1, 0.03, 0.01)]
    assert price_work(Work("whole", 1, rows=32), small) == pytest.approx(0.015 + 32 * 0.015)
    assert price_work(Work("check"), found) is None


def test_a_build_that_stood_prices_none_that_is_made() -> None:
    """355 s for the first build of a CNN, 0.25 s for a row that it was fed then, 5 s for the next
    (campaigns/logs/tensorrt.md)."""
    first = Seen("whole", 8, 1, 355.0, build_seconds=354.6, first=True)
    fed, made = Seen("whole", 1, 1, 0.25, reused=True), Seen("whole", 1, 1, 5.0, build_seconds=4.6)
    row = Work("whole", 1, rows=1)
    assert price_work(row, [first, fed]) is None
    assert price_plan(Plan((row,)), [first, fed]).unit == 354.6
    assert price_work(row, [first, fed, made]) == 5.0
    again = msgspec.structs.replace(row, reused=True)
    assert price_work(again, [first, fed, made]) == 0.25
    assert price_work(again, [first, made]) == pytest.approx(0.4)
    assert price_work(row, [fed]) == 0.25, "no build was dear: as ever"


def test_what_shares_nothing_with_earlier_builds_is_priced_by_its_like() -> None:
    """A part of a CNN took 0.4 s on the twin and 9 s afresh as given (an H100), one of a
    transformer 0.6 s either way."""
    twin, fresh = (
        Seen("part", 1, 1, 0.4, build_seconds=0.4),
        Seen("part", 1, 1, 9.0, build_seconds=9.0, afresh=True),
    )
    part = Work("part", 2, rows=1)
    afresh = msgspec.structs.replace(part, afresh=True)
    dear = msgspec.structs.replace(afresh, dear=True)
    assert [price_work(w, [twin, fresh]) for w in (part, afresh, dear)] == [0.8, 18.0, 18.0]
    assert [price_work(w, [twin]) for w in (part, afresh, dear)] == [0.8, 0.8, None]
    whole = Seen("whole", 1, 1, 5.0, build_seconds=5.0, afresh=True)
    assert price_work(dear, [twin, whole]) is None, "of the whole model it says nothing"
    again = collect_seen(
        [(measure(attempt=n), Measurement(build_seconds=1.0), 1.1) for n in (0, 1)],
        ENGINE,
        REFERENCE,
        (),
        9,
    )
    assert [s.afresh for s in again] == [False, True]


def test_where_kernels_are_timed_a_later_build_takes_a_little_of_a_dear_first_one() -> None:
    """98 s, then 1.9 for the cleaned model; 379, then 5; 12, then 0.2 (TensorRT 10.6). A CPU engine
    pays again: not known yet."""
    whole = Work("whole", 2, rows=1)
    timed = msgspec.structs.replace(whole, timed=True)
    for first, least, most in (
        (98.0, 1.0, 4.0),
        (379.0, 4.0, 10.0),
        (24.0, 0.6, 2.0),
        (12.0, 0.2, 0.6),
    ):
        seen = [Seen("whole", 1, 1, first + 0.3, build_seconds=first, first=True)]
        assert price_work(whole, seen) is None
        assert 2 * least <= (price_work(timed, seen) or 0) <= 2 * most
        assert price_work(msgspec.structs.replace(timed, more=2.5), seen) == pytest.approx(
            (price_work(timed, seen) or 0) + 5.0
        )
        later = [*seen, Seen("whole", 1, 1, 7.0, build_seconds=6.8)]
        assert price_work(timed, later) == 14.0, "one was made"
        assert price_work(msgspec.structs.replace(timed, more=2.5), later) == 19.0


def test_a_part_that_was_never_built_is_priced_where_kernels_are_timed() -> None:
    """0.2 to 3 s on eight models whose whole took up to 8 s each, warm: more where that took more.
    Any part tells of the others then."""
    first = Seen("whole", 1, 1, 90.0, build_seconds=89.0, first=True)
    whole = Seen("whole", 1, 1, 4.0, build_seconds=3.8)
    part = Work("part", 3, rows=1)
    timed = msgspec.structs.replace(part, timed=True, afresh=True, dear=True)
    assert price_work(part, [whole]) == pytest.approx(3 * 0.6), "beside the whole model"
    assert price_work(timed, [first]) == pytest.approx(3 * CUT), (
        "which tells nothing of later builds"
    )
    stood = msgspec.structs.replace(whole, build_seconds=0.0, reused=True)
    again = [first, msgspec.structs.replace(whole, build_seconds=9.0), whole, stood]
    assert price_work(timed, again) == pytest.approx(3 * (CUT_LEAST + CUT_LATER * 3.8)), (
        "the latest of those"
    )
    for kind in CUTTING:
        told = msgspec.structs.replace(timed, kind=kind, afresh=False, dear=False)
        assert span_work(told, [first]) == CUT_SPAN
        assert span_work(told, again) == CUT_LATER_SPAN
        for other in CUTTING:
            seen = [whole, Seen(other, 1, 1, 2.0, build_seconds=2.0)]
            assert price_work(told, seen) == 6.0
            assert span_work(told, seen) == CUT_TOLD
    shrunk = [whole, *(Seen("part", 1, 1, s, build_seconds=s) for s in (1.8, 1.7, 0.1, 0.1, 0.1))]
    fresh = msgspec.structs.replace(timed, dear=False)
    assert price_work(fresh, shrunk) == pytest.approx(3 * 1.8), (
        "as dear as the case, which was shrunk since"
    )
    assert (
        price_work(fresh, [*shrunk, Seen("part", 1, 1, 2.0, build_seconds=2.0, afresh=True)]) == 6.0
    )
    assert (
        price_work(timed, [whole, Seen("part", 1, 1, 9.0, build_seconds=9.0, afresh=True)]) == 27.0
    )
    assert price_work(msgspec.structs.replace(timed, timed=False), [whole]) is None


def test_the_first_look_is_priced_once_the_reference_has_run() -> None:
    """Nothing is known of a model that nothing has run; then the reference tells, but not of a
    build that times kernels."""
    plan = STEPS["compare"].plan(context(Findings(samples=SAMPLES, inputs="i", model="m")), Size(9))
    assert [w.kind for w in plan.works] == [
        "control",
        "whole",
        "whole",
        "control",
        "other",
        "whole",
    ]
    assert (plan.works[-1].probes, plan.works[-1].told) == (0, 30.0), (
        "looks again, where nothing fails"
    )
    assert price_plan(plan, ()).seconds == -1
    ran = [Seen("import", 1, 1, 0.1), Seen("control", 1, 1, 0.2, build_seconds=0.1)]
    first = price_plan(plan.after(1), ran)
    assert 1.0 <= first.seconds <= 5.0
    assert first.open, "half a minute of looks may follow"
    assert first.most > 30
    assert price_work(Work("whole", 1, rows=1, timed=True), ran) is None


def test_a_run_with_few_marks_counts_as_one_with_none() -> None:
    """Six tensors beside a kept case, of 300 nodes, do not make dearer what the next look at every
    layer takes."""
    few, many = measure(marks="0-5"), measure(marks="0-299")
    assert [classify_probe(p, ENGINE, REFERENCE, 300) for p in (few, many)] == ["whole", "watched"]


def test_an_answer_faster_than_its_build_was_a_build_that_stood() -> None:
    infos = (SampleInfo("real:0", "real", 8),)
    took = [(ENGINE, 354.6, 355.0), (ENGINE, 354.6, 0.25), ("emulate:precision=bf16", 0.2, 0.3)]
    seen = collect_seen(
        [
            (measure(engine=e), Measurement(build_seconds=built), seconds)
            for e, built, seconds in took
        ],
        ENGINE, REFERENCE, infos, 40,
    )  # fmt: skip
    assert [(s.reused, s.build_seconds, s.first) for s in seen] == [
        (False, 354.6, True), (True, 0.0, False), (False, 0.2, False),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("kind_", "beside", "times"), [(k, *to) for k, all_ in BESIDE.items() for to in all_]
)
def test_what_was_never_measured_is_priced_beside_what_was(
    kind_: Kind, beside: Kind, times: float
) -> None:
    found = [Seen(beside, 1, 1, 2.0)]
    assert price_work(Work(kind_), found) == pytest.approx(2.0 * times)
    assert price_work(Work(kind_), [*found, Seen(kind_, 1, 1, 7.0)]) == 7.0


def test_the_latest_probes_count() -> None:
    busy = [Seen("whole", 1, 1, 1.0)] * 50 + [Seen("whole", 1, 1, 3.0)] * 8
    assert price_work(Work("whole"), busy) == 3.0


def test_what_a_search_asks_is_priced_by_its_mean() -> None:
    """Nine of ten effects are soon told, and the tenth takes most of the time."""
    mixed = [Seen("effect", 1, 1, s) for s in 4 * ([0.1] * 9 + [2.0])]
    assert price_work(Work("effect", 10, rows=1), mixed) == pytest.approx(
        10 * (28 * 0.1 + 4 * 2.0) / 32
    )
    assert price_work(Work("effect", 10, rows=1), mixed[3:10]) == pytest.approx(1.0), (
        "of a few the middle one"
    )


def test_slots_help_what_runs_ahead_only() -> None:
    found = [Seen("part", 1, 1, 1.0)]
    alone, ahead = Plan((Work("part", 10),)), Plan((Work("part", 10, ahead=True),))
    assert price_plan(alone, found, 8).seconds == price_plan(ahead, found, 1).seconds == 10.0
    assert price_plan(ahead, found, 2).seconds == pytest.approx(10 / 1.2, abs=0.01)


@pytest.mark.parametrize(
    ("probe", "wanted"),
    [
        (Inspect(engine=ENGINE), None),
        (Describe(model="m"), "read"),
        (Check(model="m", command="x"), "check"),
        (measure(), "whole"),
        (measure(keep="1-3"), "whole"),
        (measure(candidate=Candidate(severed="3")), "whole"),
        (measure(marks="0-9"), "watched"),
        (measure(engine=REFERENCE), "control"),
        (measure(reference="reference:precision=fp64"), "other"),
        (measure(engine="openvino"), "other"),
        (measure(engine=f"{ENGINE},seed=2"), "whole"),
        (measure(candidate=Candidate(nodes="0-3")), "part"),
        (measure(candidate=Candidate(nodes="0-3"), effect=True), "effect"),
        (measure(candidate=Candidate(nodes="0-9", severed="0-8")), "alone"),
        (measure(candidate=Candidate(nodes="0-1", severed="0-1")), "part"),
    ],
)
def test_what_a_probe_counts_as(probe: Measure, wanted: Kind | None) -> None:
    assert classify_probe(probe, ENGINE, REFERENCE, 10) == wanted


def test_what_an_emulation_is_asked_in_place_of_the_engine_is_its_own_kind() -> None:
    """A question takes it hundredths of a second where a build takes seconds; it prices no judge of
    the reference either."""
    asked = measure(engine=ENGINE, keep="1-3")
    assert classify_probe(asked, "tensorrt:precision=fp16", REFERENCE, 9) == "emulated"
    assert classify_probe(asked, ENGINE, REFERENCE, 9) == "whole"
    questions = Work("emulated", 100, rows=1)
    assert price_work(
        questions, [Seen("other", 1, 1, 9.0), Seen("emulated", 1, 1, 0.01)]
    ) == pytest.approx(1.0)
    plan = Plan((Work("whole", 2), questions, Work("whole", 30)))
    assert [plan.only(emulated=e).probes for e in (True, False)] == [100, 32]
    assert (price_plan(plan, []).probes, price_plan(plan, []).builds) == (132, 32), (
        "nor a build of the engine"
    )


def test_where_kernels_are_timed_a_build_of_any_rows_tells_of_the_others() -> None:
    """Of all samples only everything kept was built, in 117 s; the sets that a search tries took
    5."""
    seen = [Seen("whole", 1, 1, 5.0, build_seconds=5.0)] * 3 + [
        Seen("whole", 9, 1, 117.0, build_seconds=117.0)
    ]
    assert price_work(Work("whole", 35, timed=True), seen) == 35 * 5.0
    assert price_work(Work("whole", 1, rows=9, timed=True), seen) == 117.0


def test_a_search_on_an_engine_that_times_kernels_is_told_by_its_builds_and_by_what_it_asks_of_the_emulation() -> (
    None
):
    rule = Criterion(tolerance=0.01, precision="fp16")
    found = msgspec.structs.replace(LOCKED, emulated=1.0, criterion=rule)
    asked = STEPS["precision"].plan(context(found, engine_info=EngineView(gpus=1)), Size(68)).works
    search = {w.kind: (w.least, w.probes, w.most) for w in asked if w.open}
    assert search == {
        "emulated": (0, DRAFTED, ORDERS * DRAFTED),
        "whole": (BUILT_FEW, BUILT, BUILT_MANY),
    }
    dear = msgspec.structs.replace(found, dear=100.0)
    kept = next(
        w
        for w in STEPS["precision"]
        .plan(context(dear, engine_info=EngineView(gpus=1)), Size(68))
        .works
        if w.told
    )
    assert kept.told == IN_FP32 * 100, (
        "everything in FP32 is a build of its own, a part of the first"
    )


@given(
    st.integers(1, 50),
    st.integers(0, 50),
    st.integers(0, 500),
    st.floats(0.01, 10),
    st.floats(0.1, 1),
    st.floats(1, 9),
)
def test_the_ends_of_a_search_lie_around_its_middle(
    n: int, fewer: int, more: int, each: float, low: float, high: float
) -> None:
    work = Work("part", n, rows=1, least=max(0, n - fewer), most=n + more, span=(low, high))
    cost = price_plan(Plan((work,)), [Seen("part", 1, 1, each)])
    assert work.least * each * low - 0.01 <= cost.least <= n * each + 0.01
    assert n * each - 0.01 <= cost.most <= work.most * (each * high + BESIDES) + 0.01


def test_a_batch_of_nodes_alone_in_a_large_model_is_no_part() -> None:
    """Two batches of 25 of 50 nodes took 2 s each, a part of three 0.03: they priced seven parts
    with 8 s."""
    batch = measure(candidate=Candidate(nodes="0-24", severed="36-59"))
    assert classify_probe(batch, ENGINE, REFERENCE, 50) == "alone"


def test_only_what_worked_is_a_price() -> None:
    measured = [
        (measure(), Measurement(), 2.0),
        (measure(marks="1"), Measurement(status="cancelled"), 9.0),
    ]
    assert collect_seen(measured, ENGINE, REFERENCE, SAMPLES, 10) == (
        Seen("whole", 1, 1, 2.0, cold=True),
    )


@pytest.mark.parametrize("status", ["build-failed", "unsupported", "crash"])
def test_where_nothing_of_a_kind_works_what_broke_is_a_price(status: str) -> None:
    """A model that the engine refuses: five steps of up to 29 s said that nothing was known, after
    0.4 s for each refusal."""
    seen = collect_seen(
        [(measure(), Measurement(status=status), 0.4)], ENGINE, REFERENCE, SAMPLES, 10
    )  # type: ignore[arg-type]
    assert price_work(Work("whole", 3, rows=1), seen) == pytest.approx(1.2)
    worked = collect_seen([(measure(), Measurement(), 2.0)], ENGINE, REFERENCE, SAMPLES, 10)
    assert price_work(Work("whole", 3, rows=1), [*worked, *seen]) == 6.0
    assert price_work(Work("effect", 1, rows=1), seen) is not None, "beside it"
    assert count_rows(("real:0", "real:1", "real:0/3"), SAMPLES) == 8 + 1 + 1


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("findings", [Findings(), LOCKED], ids=["nothing-known", "locked"])
@pytest.mark.parametrize("nodes", [0, 1, 300, 50_000])
def test_every_step_has_a_plan_whatever_is_known(name: str, findings: Findings, nodes: int) -> None:
    assert STEPS[name].plan.__module__ == STEPS[name].outcome.__module__, (
        "its own, not the one by default"
    )
    for ctx in (
        context(findings),
        context(findings, check="true"),
        context(findings, engine_info=EngineView(optimizers=("a", "b", "c"))),
    ):
        plan = STEPS[name].plan(ctx, Size(nodes))
        assert plan.probes >= 0
        made = price_plan(plan, [Seen("whole", 1, 1, 1.0), Seen("check", 1, 1, 1.0)])
        assert made.seconds >= 0, "what one look at the whole model took prices everything"
        assert made == msgspec.convert(msgspec.to_builtins(made), Cost), "it travels in the journal"


def test_a_search_for_nodes_to_keep_takes_as_many_probes_whoever_is_accused() -> None:
    """32 to 277 came for 23 to 250 nodes, whether one is accused or most of them; less where a set
    that holds is known."""
    plan = STEPS["precision"].plan

    def accused(nodes: str, **rest: object) -> Findings:
        case = Case(Candidate(nodes), "real:0/3", node_ids=nodes, verified="3/3")
        return msgspec.structs.replace(LOCKED, culprits=(Culprit(case, "unknown"),), **rest)

    def search(findings: Findings) -> tuple[int, int, int]:
        work = next(w for w in plan(context(findings), Size(68)).works if w.open)
        return work.least, work.probes, work.most

    assert {search(accused(n)) for n in ("0-7", "0-26", "0-1")} == {(10, 70, 300)}
    held = Workaround("precision", ENGINE, keep="0-1", samples_ok=8, samples_n=8)
    assert search(accused("0-7", workaround=held, keep="0"))[:2] == (0, 28), (
        "it was looked for before"
    )
    assert search(accused("0-7", workaround=held))[1] == 70, (
        "one build cured, and nothing was searched"
    )
    timed = next(
        w for w in plan(context(LOCKED, engine_info=EngineView(gpus=1)), Size(68)).works if w.open
    )
    assert (timed.times, timed.rows, timed.span) == (TIMED_TIMES, 0, TIMED_SPAN), (
        "a build takes as long for any rows"
    )
    assert search(msgspec.structs.replace(LOCKED, spread=True))[1] == 400, (
        "where all share the blame its budget is spent"
    )


def test_a_model_in_qdq_form_has_its_layers_tried_one_by_one() -> None:
    ops, tensors, nodes = (
        ("QuantizeLinear", "DequantizeLinear", "Relu"),
        [Tensor(0, "x", "float32", "input", -1)],
        [],
    )
    for n in range(3 * 46):
        tensors.append(Tensor(n + 1, f"t{n + 1}", "float32", "node", n, (4,), 16))
        nodes.append(Node(n, f"n{n}", ops[n % 3], "", (n,), (n + 1,)))
    index = GraphIndex("m", tuple(nodes), tuple(tensors), (0,), (3 * 46,))
    info = view_engine({"capabilities": {}})
    plan = STEPS["workaround"].plan(
        context(LOCKED, engine_info=info), Size(len(index.nodes), index)
    )
    assert 100 <= plan.probes <= 400
    assert STEPS["workaround"].plan(context(LOCKED, engine_info=info), Size(300)).probes == 0


def test_what_comes_and_goes_is_confirmed_in_as_many_runs_as_a_verdict_needs() -> None:
    """26 s came for the whole model in 300 runs, where 0.03 had been said."""
    case = Case(Candidate("0"), "real:0/3", node_ids="0", verified="3/3")
    steady, flaky = (
        [w.runs for w in STEPS["confirm"].plan(context(msgspec.structs.replace(LOCKED, case=case, looks=n)), Size(9)).works
         if w.kind == "whole"]
        for n in (1, 300)
    )  # fmt: skip
    assert steady == [1, 1]
    assert flaky == [300, 300]


def test_a_reduction_is_a_bisection() -> None:
    """Four times the logarithm, and a bounded rest: 1,000 times the nodes cost 40 probes more."""
    small, large = (STEPS["reduce"].plan(context(LOCKED), Size(n)).probes for n in (64, 1024 * 64))
    assert large - small == 40
    assert small < 69


def test_a_search_after_one_that_found_nothing_asks_more() -> None:
    """9 to 84 came where nothing had looked at the layers (mostly a refused model), 82 to 337 where
    that had found no part."""
    nodes = tuple(Node(i, f"n{i}", "Relu", "", (i,), (i + 1,)) for i in range(68))
    tensors = tuple(Tensor(i, f"t{i}", "float32", "node", i - 1, (4,), 16) for i in range(69))
    index = GraphIndex("m", nodes, tensors, (0,), (68,))
    at_once, after = (
        STEPS["reduce"].plan(context(LOCKED), Size(68, i)).probes for i in (None, index)
    )
    assert (at_once, after) == (56, 84)
    refused = msgspec.structs.replace(LOCKED, signature=Signature(kind="build", sample="real:0/3"))
    assert STEPS["reduce"].plan(context(refused), Size(68, index)).probes == 56


def test_a_group_costs_more_than_a_node() -> None:
    def suspect(nodes: str) -> Findings:
        return msgspec.structs.replace(LOCKED, suspects=(Suspect(1, 1, nodes, 1.0, 1.0),))

    one, many = (STEPS["extract"].plan(context(suspect(n)), Size(100)) for n in ("4", "2-5"))
    assert many.probes > one.probes + 10
    searched = [next(w for w in plan.works if w.open) for plan in (one, many)]
    assert [(w.least, w.most) for w in searched] == [(1, 52), (1, 48)], "a cut that passes is grown"


def test_where_kernels_are_timed_half_of_what_makes_a_case_simpler_is_told_to_cost_nothing() -> (
    None
):
    """Nor does a part that fails alone have a passing neighbour there, whose builds may be dear:
    what was foretold is cut out."""
    cured = Workaround(kind="precision", engine=ENGINE, keep="4")
    found = msgspec.structs.replace(LOCKED, workaround=cured, dear=90.0)
    for view, times, last in (
        (EngineView(), 1.0, "effect"),
        (EngineView(gpus=1), phrases.SHRUNK, "part"),
    ):
        asked = STEPS["extract"].plan(context(found, engine_info=view), Size(100)).works
        assert next(w.times for w in asked if w.probes == 7) == times, (
            "settled where builds are dear, too"
        )
        assert (asked[-1].kind, asked[-1].afresh, asked[-1].dear) == (last, True, True), (
            "as given, where a twin is asked"
        )


def test_where_precision_is_an_order_fresh_builds_are_those_of_the_engine_that_is_asked() -> None:
    order = OptionView("typing", ordered="strong")
    view = EngineView(gpus=1, capabilities={"strongly-typed": Capability(True)}, options=(order,))
    found = msgspec.structs.replace(LOCKED, dear=90.0)
    for twin, dear in (("", False), ("trt:level=1", True)):
        ctx = context(msgspec.structs.replace(found, twin=twin), engine_info=view)
        assert phrases.afresh(ctx, Work("part")).dear is dear
    assert phrases.afresh(context(found, engine_info=EngineView(gpus=1)), Work("part")).dear


def test_where_rounding_alone_breaks_the_tolerance_the_effect_of_most_nodes_is_asked_and_of_parts_of_the_model() -> (
    None
):
    strict = msgspec.structs.replace(
        LOCKED, criterion=Criterion(tolerance=0.0002, precision="fp16")
    )
    (effects, parts), (few, none) = (
        [w for w in STEPS["layerwise"].plan(context(f), Size(30)).works if w.open]
        for f in (strict, LOCKED)
    )
    assert (effects.probes, effects.least, effects.most) == (30, 22, 30)
    assert (parts.kind, parts.probes, parts.least, parts.most) == ("effect", 8, 0, 8)
    assert (few.probes, few.least, few.most) == (4, 1, 48)
    assert (none.probes, none.least, none.most) == (0, 0, 8)


def test_later_fresh_builds_of_a_case_take_less_where_kernels_are_timed() -> None:
    case = Case(Candidate("0"), "real:0/3", node_ids="0", verified="3/3")
    found = msgspec.structs.replace(LOCKED, case=case)
    times = [
        next(
            w.times
            for w in STEPS["confirm"].plan(context(found, engine_info=view), Size(9)).works
            if w.afresh
        )
        for view in (EngineView(), EngineView(gpus=1))
    ]
    assert times == [1.0, 0.65]


def test_the_first_step_says_what_the_model_takes_on_the_disk() -> None:
    """20 GiB are taken in once; the judge writes none in float64, whatever the size."""
    plan = STEPS["compare"].plan(context(Findings()), Size(given=20 << 30))
    assert [w.kind for w in plan.works[:2]] == ["import", "read"]
    assert 20 << 30 <= plan.disk <= 21 << 30
    assert (
        200 << 20
        <= STEPS["compare"].plan(context(Findings()), Size(given=100 << 20)).disk
        < 300 << 20
    )
    assert STEPS["compare"].plan(context(Findings()), Size()).disk == -1


def test_a_search_in_a_large_model_does_not_count_weights_that_no_case_holds() -> None:
    """A hundred nodes with 200 MiB each: a case of four, held once (the model points to what the
    session has), and a neighbour that is kept small."""
    weight = [
        Tensor(i, f"w{i}", "float32", "weight", -1, (50 << 20,), 200 << 20) for i in range(100)
    ]
    made = [Tensor(100 + i, f"t{i}", "float32", "node", i, (4,), 16) for i in range(100)]
    nodes = tuple(Node(i, f"n{i}", "Op", "", (i,), (100 + i,)) for i in range(100))
    index = GraphIndex("m", nodes, (*weight, *made), (), (199,))
    size = Size(100, index, 0, 20_000 << 20)
    case = 4 * (200 << 20)
    one = msgspec.structs.replace(LOCKED, suspects=(Suspect(1, 1, "4", 1.0, 1.0),))
    assert case // 4 <= STEPS["extract"].plan(context(one), size).disk <= case // 3
    for name in ("reduce", "extract", "confirm"):
        ctx = context(msgspec.structs.replace(LOCKED, suspects=(Suspect(1, 1, "4-7", 1.0, 1.0),)))
        assert case <= STEPS[name].plan(ctx, size).disk <= 2 * case + (1 << 30)
    assert STEPS["sanitize"].plan(context(LOCKED), size).disk < 1 << 30


def test_cleaning_a_model_up_does_not_price_what_is_read_later() -> None:
    """51 s for one of 4 LSTMs, whose graph is read in less than one."""
    asked = ((Sanitize(model="m"), Measurement(), 51.0), (Describe(model="m"), Measurement(), 0.1))
    found = collect_seen(asked, ENGINE, REFERENCE, (), 10)
    assert [(s.kind, s.seconds) for s in found] == [("read", 0.1)]


def test_taking_the_model_in_does_not_price_what_is_read_later() -> None:
    found = [Seen("import", 1, 1, 200.0), Seen("read", 1, 1, 0.5)]
    assert price_work(Work("read", 2), found) == 1.0
    assert classify_probe(Import(path="m.onnx", digest="d"), ENGINE, REFERENCE, 10) == "import"


def test_what_the_reference_took_is_paid_once_a_model_and_sample() -> None:
    """The first look at a model waits for the reference too: it prices the first look at another
    model, and no later one."""
    infos = (SampleInfo("real:0", "in.npz"),)
    first, later = (
        Measurement(build_seconds=1.0, run_seconds=3.0),
        Measurement(build_seconds=1.0, run_seconds=1.0),
    )
    probe = measure(samples=("real:0",))
    asked = ((probe, first, 20.0), (msgspec.structs.replace(probe, attempt=1), later, 2.2))
    met: set[tuple[str, str, str]] = set()
    (cold,) = collect_seen(asked[:1], ENGINE, REFERENCE, infos, 10, met)
    (warm,) = collect_seen(asked[1:], ENGINE, REFERENCE, infos, 10, met)
    assert (cold.cold, cold.again, warm.cold, warm.again) == (True, 5.0, False, 2.2)
    again, fresh = Work("whole", 1, rows=1), Work("whole", 1, rows=1, fresh=True)
    assert [price_work(w, [cold]) for w in (again, fresh)] == [5.0, 20.0]
    assert [price_work(w, [cold, warm]) for w in (again, fresh)] == [2.2, 20.0]
    assert price_work(Work("whole", 1, rows=1, runs=5), [cold, warm]) == pytest.approx(
        2.2 + 4 * 1.0
    )


def test_few_effects_are_expected_where_rounding_is_far_below_what_is_allowed() -> None:
    found = msgspec.structs.replace(LOCKED, criterion=Criterion(tolerance=1e-4, precision="fp32"))
    low, full = (STEPS["layerwise"].plan(context(f), Size(599)).probes for f in (LOCKED, found))
    assert low - full > 20


def test_a_build_that_ran_often_does_not_make_one_run_dear() -> None:
    found = [Seen("whole", 1, 5, 11.0, run_seconds=10.0, build_seconds=1.0)]
    assert price_work(Work("whole", 1, rows=1), found) == pytest.approx(3.0)
    assert price_work(Work("whole", 1, rows=1, runs=20), found) == pytest.approx(3.0 + 19 * 2.0)


def test_the_reference_against_itself_is_not_priced_by_its_judge() -> None:
    control = measure(engine=REFERENCE)
    judge = measure(engine=REFERENCE, reference="openvino:precision=f32")
    assert [classify_probe(p, ENGINE, REFERENCE, 10) for p in (control, judge)] == [
        "control",
        "other",
    ]
    assert (
        classify_probe(measure(engine=REFERENCE), "onnxruntime:optimization=all", REFERENCE, 10)
        == "control"
    )
    assert classify_probe(measure(engine=REFERENCE), REFERENCE, REFERENCE, 10) == "whole"
    assert (
        price_work(Work("control", 1, 1), [Seen("control", 1, 1, 0.5), Seen("other", 1, 1, 60.0)])
        == 0.5
    )


def test_suspects_that_overflow_like_the_case_are_counted_with_it() -> None:
    """Two more at the same operator; one of another, one that stays finite and the case's own count
    nothing."""
    ops = ("Pow", "Pow", "Pow", "Exp", "Pow")
    nodes = tuple(Node(i, f"n{i}", op, "", (), (i,)) for i, op in enumerate(ops))
    tensors = tuple(Tensor(i, f"t{i}", "float32", "node", i, (4,), 16) for i in range(5))
    size = Size(5, GraphIndex("m", nodes, tensors, (), (4,)))
    info = {"capabilities": {"keep": {"present": True, "reason": ""}}}
    case = Case(Candidate("0"), "real:0", node_ids="0", verified="3/3")
    some = tuple(Suspect(n, n, str(n), 1.0, 1.0, nonfinite=n != 4) for n in range(5))
    counts = [
        STEPS["confirm"]
        .plan(
            context(
                msgspec.structs.replace(LOCKED, case=case, suspects=s),
                engine_info=view_engine(info),
            ),
            size,
        )
        .probes
        for s in (some[:1], some)
    ]
    assert counts[1] - counts[0] == 2 * 15


def test_nodes_alone_in_many_builds_share_the_model() -> None:
    found = [Seen("whole", 1, 1, 10.0)]
    small, large = (STEPS["layerwise"].plan(context(LOCKED), Size(n)) for n in (1_000, 50_000))
    alone = [next(w for w in plan.works if w.kind == "alone") for plan in (small, large)]
    assert [w.probes for w in alone] == [2, 50]
    each = [price_work(msgspec.structs.replace(w, nodes=0), found) for w in alone]
    assert each[0] == pytest.approx(each[1])
    # Each of its nodes is scored, too: twice, as stored and exactly.
    assert price_work(alone[1], found) == pytest.approx(each[1] / 3 + 2 * 0.001 * 50_000, rel=0.01)
    assert price_work(alone[1], [*found, Seen("alone", 1, 1, 2.0)]) == pytest.approx(50 * 2.0)


def test_a_look_at_each_node_takes_longer_the_more_there_are() -> None:
    """Beside the whole model, where no such look was measured; on an engine that times kernels that
    is a build of its own."""
    found = [Seen("whole", 1, 1, 0.4)]
    looks = [Work("watched", rows=1, nodes=n) for n in (0, 40, 258)]
    assert [price_work(w, found) for w in looks] == pytest.approx([1.6, 0.64, 0.858])
    assert price_work(Work("watched", rows=1, nodes=258, timed=True), found) == pytest.approx(1.6)
    assert price_work(looks[2], [*found, Seen("watched", 1, 1, 0.5)]) == 0.5
    assert price_work(
        Work("alone", rows=1, nodes=258), [*found, Seen("watched", 1, 1, 0.5)]
    ) == pytest.approx(0.45)


def test_what_the_reference_takes_tells_the_first_effect_and_the_first_look_at_layers() -> None:
    found = [Seen("control", 1, 1, 0.2), Seen("whole", 1, 1, 5.0, build_seconds=4.0)]
    assert price_work(Work("effect", 2, rows=1), found) == pytest.approx(2 * (0.01 + 0.6 * 0.2))
    look = Work("watched", rows=1, nodes=100, bytes=100_000_000)
    assert price_work(look, found) == pytest.approx(0.2 + 0.1 + 1.5)
    assert price_work(msgspec.structs.replace(look, kind="alone"), found) == pytest.approx(
        0.9 * 1.8
    )
    assert span_work(look, found) == LOOKED
    assert span_work(msgspec.structs.replace(look, bytes=-1), found) == BESIDE_IT, (
        "how large its tensors are nobody knows"
    )
    assert price_work(msgspec.structs.replace(look, timed=True), found) == 20.0, (
        "kernels are timed for it"
    )
    measured = [*found, Seen("effect", 1, 1, 0.5), Seen("watched", 1, 1, 3.0)]
    assert price_work(Work("effect", rows=1), measured) == 0.5
    assert price_work(msgspec.structs.replace(look, kind="alone"), measured) == pytest.approx(2.7)


def test_what_is_fed_to_a_build_takes_as_long_as_a_build_where_none_may_stand() -> None:
    """A repeat of five runs was told as 0.1 s and took 2.7: the build did not stand."""
    again = Plan((Work("whole", 1, rows=1, reused=True),))
    made = Seen("whole", 1, 1, 3.0, build_seconds=2.9)
    cost = price_plan(again, [made])
    assert cost.most > 3.0
    assert cost.open
    stood = price_plan(again, [made, Seen("whole", 1, 1, 0.1, reused=True)])
    assert stood.most < 1.0
    assert not stood.open


def test_the_same_nodes_watched_and_alone_are_told_too_low_together() -> None:
    """Of other kinds one is told too low where another is told too high, so that their ends are
    nearer than their sums."""
    found = [Seen("control", 1, 1, 1.0)]
    looks = (Work("watched", rows=1, nodes=0, bytes=0), Work("alone", rows=1, nodes=0, bytes=0))
    low, high = LOOKED
    cost = price_plan(Plan(looks), found)
    assert (cost.least, cost.most) == pytest.approx((1.9 * low, 1.9 * high + 2 * BESIDES))
    with_effects = price_plan(Plan((*looks, Work("effect", 3, rows=1))), found)
    assert with_effects.most < cost.most + 3 * 0.61 * FELT[1]


def test_a_confirmation_looks_at_the_whole_model_twice_and_more_only_where_something_overflows() -> (
    None
):
    """It was planned as up to three looks and took two of 27; where values could be fed none of the
    others came."""
    case = Case(Candidate("0"), "real:0/3", node_ids="0", verified="3/3")
    found = msgspec.structs.replace(LOCKED, case=case)
    infinite = Signature(kind="accuracy", sample="real:0/3", nonfinite=True)
    keeps = view_engine({"capabilities": {"keep": {"present": True, "reason": ""}}})
    plain, over = (
        [
            w
            for w in STEPS["confirm"].plan(context(f, engine_info=keeps), Size(30)).works
            if w.kind in ("whole", "control")
        ]
        for f in (found, msgspec.structs.replace(found, signature=infinite))
    )
    assert [(w.fewest, w.highest, w.rows) for w in plain] == [(1, 1, 1), (1, 1, 9)]
    assert plain[1].span == REST
    assert [(w.fewest, w.highest) for w in over] == [(1, 1), (1, 1), (0, 2), (0, 1), (0, 2)]
    timed = context(found, engine_info=EngineView(gpus=1))
    effect = next(w for w in STEPS["confirm"].plan(timed, Size(30)).works if w.kind == "effect")
    assert effect.times == STANDS, "its build stands"


SEARCH = Work("part", 40, rows=1, least=4, most=400)


@pytest.mark.parametrize(("most", "one"), [(49.0, True), (51.0, False)])
def test_before_a_step_runs_a_number_is_told_where_its_ends_are_five_times_apart(
    most: float, one: bool
) -> None:
    """While it runs only where they are four times apart: what it has asked by then is no fair part
    of what it asks."""
    assert Cost(seconds=20.0, least=10.0, most=most).open != one
    assert is_wide(10.0, most)


def test_what_an_engine_has_refused_is_refused_again_or_built() -> None:
    """A workaround of a refused If was told 54 to 231 s, by builds of what stood in for it, and 1.8
    came."""
    refused = msgspec.structs.replace(
        LOCKED, signature=Signature(kind="build", sample="real:0"), fixable="If"
    )
    seen = (
        [Seen("control", 1, 1, 0.1)] * 3
        + [Seen("read", 1, 1, 0.1)] * 3
        + [Seen("whole", 8, 1, 36.0, build_seconds=35.0)] * 3
    )
    asked = STEPS["workaround"].plan(context(refused, engine_info=EngineView(gpus=1)), Size(68))
    cost = price_plan(asked, seen)
    assert cost.open
    assert cost.least < 2 < 70 < cost.most


def test_what_a_cleaned_model_takes_to_build_is_told_between_ends_where_kernels_are_timed() -> None:
    found = msgspec.structs.replace(LOCKED, looks=1)
    spans = {
        gpus: next(
            w
            for w in STEPS["sanitize"]
            .plan(context(found, engine_info=EngineView(gpus=gpus)), Size(9))
            .works
            if w.open
        ).span
        for gpus in (0, 1)
    }
    assert spans == {0: None, 1: ANEW}


def test_a_search_is_told_as_a_range() -> None:
    found = [Seen("whole", 1, 1, 2.0), Seen("part", 1, 1, 0.1)]
    cost = price_plan(Plan((Work("whole", 1, rows=1), SEARCH)), found)
    assert (cost.probes, cost.least_probes, cost.most_probes) == (41, 1, 401)
    assert cost.seconds == pytest.approx(2 + 40 * 0.1)
    low, high = SELDOM
    # As many too few as dear too low: both at once is seldom.
    under = 4 * math.exp(-math.hypot(math.log(40 / 4), math.log(1 / low)))
    over = 4 * math.exp(LONGER * math.hypot(math.log(400 / 40), math.log(JOINED + BESIDES / 0.1)))
    assert 4 * 0.1 * low < under < 4 < over < 400 * (0.1 * JOINED + BESIDES)
    assert cost.least == pytest.approx(6 - math.hypot(2 - 2 * low, 4 - under), abs=0.01)
    assert cost.most == pytest.approx(6 + math.hypot(2 * high + BESIDES - 2, over - 4), abs=0.01)
    assert cost.open
    assert not price_plan(Plan((Work("whole", 100, rows=1), SEARCH)), found).open, (
        "what is open is little of it"
    )
    unknown = price_plan(Plan((SEARCH,)), [])
    assert (unknown.seconds, unknown.least, unknown.most, unknown.open) == (-1.0, -1.0, -1.0, True)
    closed = price_plan(Plan((Work("part", 40, rows=1),)), found)
    assert (closed.least_probes, closed.most_probes, closed.open) == (-1, -1, False)
    assert (closed.least, closed.most) == pytest.approx((4 * low, 40 * (0.1 * high + BESIDES)))


PRICED = Work("part", 100, rows=2)
OWN = Seen("part", 2, 1, 1.0)


@pytest.mark.parametrize(
    ("work", "seen", "span"),
    [
        (PRICED, [OWN] * 3, MEASURED),
        (PRICED, [OWN] * 2, SELDOM),
        (PRICED, [msgspec.structs.replace(OWN, rows=8)] * 9, SELDOM),
        (PRICED, [msgspec.structs.replace(OWN, rows=9)] * 9, OTHERWISE),
        (PRICED, [msgspec.structs.replace(OWN, afresh=True)] * 9, OTHERWISE),
        (PRICED, [msgspec.structs.replace(OWN, broke=True)] * 9, OTHERWISE),
        (msgspec.structs.replace(PRICED, fresh=True), [OWN] * 9, OTHERWISE),
        (msgspec.structs.replace(PRICED, reused=True), [OWN] * 9, BESIDE_IT),
        (PRICED, [Seen("effect", 2, 1, 1.0)] * 9, BESIDE_IT),
        (Work("read", 3), [Seen("read", 1, 1, 1.0)] * 9, READ),
        (Work("other", 3, told=1.0), [], TOLD),
        (Work("whole", 9, rows=1, timed=True), [Seen("whole", 30, 1, 1.0)], SELDOM),
        (Work("whole", 9, rows=1, timed=True), [Seen("whole", 1, 1, 1.0, broke=True)], OTHERWISE),
        (msgspec.structs.replace(PRICED, span=(0.9, 1.1)), [OWN], (0.9, 1.1)),
        (msgspec.structs.replace(PRICED, least=1, most=200), [OWN] * 3, (MEASURED[0], JOINED)),
        (msgspec.structs.replace(PRICED, least=1, most=200), [Seen("effect", 2, 1, 1.0)], BESIDE_IT),
    ],
    ids=["often", "seldom", "near rows", "far rows", "afresh", "refused", "cold", "none stood", "beside", "read", "told",
         "build", "none built",
         "by itself", "search", "search beside"],
)  # fmt: skip
def test_how_far_off_a_price_may_be_depends_on_how_it_is_known(
    work: Work, seen: list[Seen], span: tuple[float, float]
) -> None:
    assert span_work(work, seen) == span


def test_what_is_off_one_way_of_one_kind_is_mostly_off_the_other_way_of_another() -> None:
    found = [Seen("whole", 1, 1, 1.0)] * 3 + [Seen("control", 1, 1, 1.0)] * 3
    one = price_plan(Plan((Work("whole", 200, rows=1),)), found)
    two = price_plan(Plan((Work("whole", 100, rows=1), Work("control", 100, rows=1))), found)
    assert one.seconds == two.seconds == 200
    assert one.least < two.least < two.most < one.most


@given(st.floats(0, 1e4), st.floats(0, 1e4), st.floats(0, 1), st.floats(0, 1))
def test_a_number_is_near_all_that_may_come(
    least: float, more: float, planned: float, came: float
) -> None:
    """Where one is told at all, whatever comes between its ends is within a factor of two, or
    within a second."""
    most = least + more
    seconds = settle_between(least + planned * more, least, most)
    comes = least + came * more
    if is_wide(least, most):
        assert seconds == least + planned * more
    else:
        assert seconds / 2 - 0.01 <= comes <= 2 * seconds + 0.01 or abs(comes - seconds) <= 1.01


def test_what_a_probe_of_a_search_takes_is_told_where_its_kind_was_measured() -> None:
    found = [Seen("whole", 1, 1, 2.0)] * 3 + [Seen("part", 1, 1, 0.1)]
    assert price_plan(Plan((Work("whole", 1, rows=1), SEARCH)), found).each == pytest.approx(0.1)
    assert price_plan(Plan((Work("whole", 1, rows=1), SEARCH)), found[:3]).each == -1, (
        "none of its kind was measured"
    )
    assert price_plan(Plan((Work("whole", 4, rows=1),)), found).each == pytest.approx(2.0)


def test_control_flow_that_is_still_to_be_taken_apart_has_no_price() -> None:
    """It took 45 to 58 s of a text model, cleaning up what came of it 22, and both next to nothing
    of others."""
    found = [Seen("read", 1, 1, 0.1), Seen("whole", 7, 1, 1.0, cold=True)]
    flat = msgspec.structs.replace(LOCKED, inputs="i", samples=SAMPLES)
    bodies = msgspec.structs.replace(flat, bodies=2)
    for name in ("sanitize", "inputs"):
        told = [
            price_plan(STEPS[name].plan(context(f), Size(9)), found).seconds
            for f in (flat, bodies, msgspec.structs.replace(bodies, opened=True))
        ]
        assert [s > 0 for s in told] == [True, False, True]


def test_of_a_search_that_is_partly_known_less_is_open() -> None:
    plan = Plan((SEARCH, Work("whole", 3)))
    (left, _) = plan.of(13).works
    assert (left.probes, left.least, left.most) == (10, 0, 370)
    assert [w.probes for w in plan.of(60).works] == [40, 3, 17], (
        "where it is longer than planned it searches on"
    )
    assert plan.of(60).works[-1].kind == "part"


@pytest.mark.parametrize("nodes", [1, 40, 2_000])
@pytest.mark.parametrize("name", ["reduce", "layerwise", "workaround", "precision", "quantization"])
def test_a_plan_lies_within_its_own_range(name: str, nodes: int) -> None:
    cost = price_plan(STEPS[name].plan(context(LOCKED), Size(nodes)), [])
    assert cost.least_probes <= cost.probes
    assert cost.probes <= cost.most_probes or cost.most_probes == -1


def built(seconds: float, **rest: object) -> tuple[Measure, Measurement, float]:
    probe = Measure(
        model="m", inputs="i", samples=("real:0",), engine="tensorrt", reference="onnxruntime"
    )
    return msgspec.structs.replace(probe, **rest), Measurement(build_seconds=seconds), seconds + 1


def test_a_dear_first_build_does_not_price_the_later_ones() -> None:
    """84 s, then 9 s each: five more are 45 s, not seven minutes; while none was seen, nobody
    knows."""
    plan = Plan((Work("whole", 5, 1),))
    first = collect_seen([built(84.0)], "tensorrt", "onnxruntime", (), 9)
    told = price_plan(plan, first)
    assert (told.seconds, told.unit) == (-1.0, 84.0)
    later = collect_seen([built(84.0), built(9.0), built(9.0)], "tensorrt", "onnxruntime", (), 9)
    told = price_plan(plan, later)
    assert told.seconds == pytest.approx(50, rel=0.2)
    assert told.unit == -1


def test_repeated_builds_pay_a_first_one_of_their_own() -> None:
    seen = collect_seen(
        [built(84.0), built(9.0), built(80.0, attempt=1), built(8.0, attempt=2)],
        "tensorrt",
        "onnxruntime",
        (),
        9,
    )
    assert [s.first for s in seen] == [True, False, True, False]


def test_a_quick_first_build_prices_the_others() -> None:
    seen = collect_seen([built(3.0)], "tensorrt", "onnxruntime", (), 9)
    assert price_plan(Plan((Work("whole", 5, 1),)), seen).seconds == pytest.approx(20, rel=0.3)


def test_a_first_build_of_a_small_model_is_cold_too() -> None:
    """12 s on TensorRT, where the next ones took 3: it would have said four times too much of each
    step that follows."""
    plan = Plan((Work("whole", 4, rows=1),))
    seen = collect_seen([built(12.0), built(3.0)], "tensorrt", "onnxruntime", (), 9)
    assert price_plan(plan, seen).seconds == pytest.approx(
        4 * price_work(Work("whole", rows=1), seen[1:])
    )
    assert price_plan(plan, seen[:1]) == msgspec.structs.replace(price_plan(plan, ()), unit=12.0)


def test_what_is_foretold_takes_the_place_of_fresh_builds_in_the_plan() -> None:
    """Where a faultless engine of that precision is wrong too, kernels are not to blame, and
    nothing is built afresh."""
    can = {"rebuild": {"present": True}, "keep": {"present": True}}
    half = view_engine({"capabilities": can, "storage": "float16", "precision": "fp16"})
    full = view_engine({"capabilities": {"rebuild": {"present": True}}})
    failing = msgspec.structs.replace(
        LOCKED, signature=msgspec.structs.replace(LOCKED.signature, outputs=("y",))
    )
    explained = msgspec.structs.replace(failing, emulated=0.5)
    plan = STEPS["repeat"].plan
    size = Size(50)
    assert plan(context(failing, engine_info=half), size).probes == 5
    timed = msgspec.structs.replace(half, gpus=1)
    assert plan(context(failing, engine_info=timed), size).works[-1].span == KEPT_SPAN, (
        "5 to 8 s on a transformer"
    )
    assert plan(context(failing, engine_info=full), size).probes == 6
    assert plan(context(explained, engine_info=full), size).probes == 1


def test_runs_whose_answer_lies_in_a_file_are_priced_by_the_whole_probe() -> None:
    """298 runs that all differ, 20 s on the wall: the answer is too large for the journal, and
    tells no seconds of its own."""
    repeated, _, _ = built(0.0, runs=298)
    once = built(0.0)
    seen = collect_seen(
        [(repeated, Measurement(), 20.0), (once[0], Measurement(run_seconds=0.001), 0.1)],
        "tensorrt",
        REFERENCE,
        (),
        9,
    )
    assert price_work(Work("whole", rows=1, runs=298), seen) == pytest.approx(20, rel=0.05)
    assert price_work(Work("whole", rows=1, runs=149), seen) == pytest.approx(10, rel=0.05)
