"""What steps were expected to take beside what they took: a table of real sessions, read from their
journals.

    python tests/benchmarks/estimates.py [FOLDER...] [--as-said] [--page FILE] [--graph SESSION]

FOLDER: sessions, or folders of such, at any depth (a campaign's ``--out``). Each step is priced by
the rules as they are now, from what its journal knew when the step began; a probe that several of
the sessions asked counts with the fewest seconds that it took in any of them, so that the rules are
judged and not what else the machine had to do. ``--as-said``: what the journal itself has, both of
the estimate and of what came. A journal by itself (``NAME.jsonl``, from a machine that is gone) can
be given, too; ``--graph``: a session of the same model here, whose graph stands in for the one that
went with that machine.

Without a folder, sets of sessions on CPU engines are walked first, with the recommended answers,
twice, into build/estimates; what lies there is not walked again. Their probes take seconds of the
processor (``processor``), on one core. Models of others come from their wheels
(``campaigns/field/models.py``). ``--page`` writes the tables into a page, between its marks.
"""

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

sys.path.insert(0, str(Path(__file__).parents[2]))
from campaigns.field import campaign, models
from narrowdown.engines.asking import Note, StepRefused
from narrowdown.engines.graph.index import GraphIndex
from narrowdown.engines.probe import Measurement
from narrowdown.engines.probe import key as probe_key
from narrowdown.engines.search.cost import Cost
from narrowdown.engines.steps.registry import STEPS
from narrowdown.engines.store.content import Store
from narrowdown.wizard.flow.load import load
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.runner import drive
from narrowdown.wizard.runner import estimate as estimating
from narrowdown.wizard.runner.context import step_context
from narrowdown.wizard.runner.ledger import asked_probe, known_measurement
from narrowdown.wizard.runner.snapshot import left_of
from narrowdown.wizard.session import events as e
from narrowdown.wizard.session import folder as folders
from narrowdown.wizard.session import journal as journals
from narrowdown.wizard.session.state import State, advance
from narrowdown.wizard.words import count

ROOT = Path(__file__).parents[2]
SOON = 1.0  # seconds; how far off what takes less is does not matter to anyone
FACTOR = 2.0
PARTS = (
    0.1,
    0.25,
    0.5,
)  # of a step's seconds, when it is looked at how long it is said to take still
GRID = 40  # looks at what is told while a step runs, evenly over its seconds
BEGIN, END = "<!-- estimates: begin -->", "<!-- estimates: end -->"
LONGEST = 330  # seconds on the wall after which a session is stopped; its finished steps count
TIMES = 2  # how often each session is walked
MODELS = ROOT / "wizard" / "demo" / "models"
SORT = (MODELS / "sort_tf_massive_m4.onnx", "--inputs", MODELS / "sort_tf_massive_m4_in.npz")
SHAPES = (MODELS / "shapes_cnn.onnx", "--inputs", MODELS / "shapes_cnn_in.npz")
# The rules were fitted on these.
FITTED: dict[str, tuple[object, ...]] = {
    **{f"demo-{name}": ("demo", name) for name in ("shapes", "sort", "quantized", "magika")},
    "sort-bf16": ("run", *SORT, "--engine", "emulate:precision=bf16"),
    "sort-precision": ("run", *SORT, "--engine", "emulate", "--flow", "precision"),
    "shapes-precision": ("run", *SHAPES, "--engine", "emulate", "--flow", "precision"),
}
FITTED_FIELD = (
    ("nemo80", "emulate:precision=fp16"), ("hey_mycroft", "onnxruntime:optimization=all"), ("kaldi", "openvino"),
    ("hey_jarvis", "emulate:precision=fp16"), ("hey_jarvis", "int8"), ("ocr4_direction", "emulate:precision=fp16"),
    ("wake_embedding", "emulate:precision=bf16"), ("nemo80", "emulate:precision=bf16"),
    ("hey_jarvis", "openvino:precision=f32"), ("wake_embedding", "int8"), ("plcmos", "openvino"),
    ("silero_vad_half", "openvino:precision=f32"), ("hey_jarvis", "emulate:precision=bf16"),
    ("centerface", "emulate:precision=fp16"), ("silero_vad", "openvino"), ("ocr4_detection", "emulate:precision=fp16"),
    ("captcha_int8", "emulate:precision=fp16"), ("ocr4_recognition", "emulate:precision=fp16"), ("centerface", "openvino"),
    ("basic_pitch", "emulate:precision=fp16"), ("dnsmos", "emulate:precision=fp16"), ("smart_turn", "emulate:precision=fp16"),
)  # fmt: skip
# These were priced once before the last five constants were set, those of LAST after all
# but one, and those of AFTERWARDS set none.
HELD = (
    ("wake_bands", "emulate:precision=fp16"), ("ocr5_direction", "emulate:precision=fp16"), ("wespeaker", "openvino"),
    ("ocr5_detection", "emulate:precision=fp16"), ("silero_vad_2022", "emulate:precision=fp16"),
    ("ocr5_recognition", "emulate:precision=bf16"), ("silero_vad_op15", "openvino"),
    ("reading_trees", "emulate:precision=bf16"), ("hey_mycroft", "emulate:precision=bf16"), ("nudenet", "int8"),
    ("dnsmos_p808", "int8"), ("plcmos", "openvino:precision=f32"),
)  # fmt: skip
LAST = (
    ("centerface", "emulate:precision=bf16", "--flow", "precision"),
    ("page_orientation", "emulate:precision=bf16", "--tolerance", "0.002"),
    ("nudenet", "emulate:precision=fp16", "--tolerance", "0.0003"),
    ("rivagan_decoder", "emulate:precision=fp16", "--tolerance", "0.0003"),
    ("timer", "emulate:precision=bf16", "--tolerance", "0.001"),
    ("captcha_detection", "emulate:precision=fp16", "--tolerance", "0.0003"),
    ("tashkeel", "emulate:precision=bf16", "--tolerance", "0.005"),
    ("ocr4_direction", "emulate:precision=bf16", "--flow", "precision"), ("whisper80", "openvino"),
    ("gigaam_v2_conv", "emulate:precision=fp16", "--tolerance", "0.0003"),
    ("hey_jarvis", "emulate:precision=bf16", "--flow", "precision"),
)  # fmt: skip
AFTERWARDS = (
    ("ocr4_recognition", "emulate:precision=fp16", "--flow", "precision"),
    ("rivagan_encoder", "emulate:precision=fp16", "--tolerance", "0.0003"), ("smart_turn", "onnxruntime:optimization=all"),
    ("plcmos", "emulate:precision=fp16", "--tolerance", "0.0002"),
    ("swift_f0", "emulate:precision=fp16", "--tolerance", "0.0002"),
    ("silero_vad", "emulate:precision=bf16", "--tolerance", "0.002"),
    ("aecmos", "emulate:precision=fp16", "--tolerance", "0.0002"),
    ("wake_embedding", "emulate:precision=fp16", "--tolerance", "0.0003"),
    ("dnsmos_p808", "emulate:precision=fp16", "--tolerance", "0.0003"),
)  # fmt: skip


# Of models and limits that are in none of these, walked on 26 November once the rules stood, and
# priced once then.
NEW = (
    ("dnsmos_2020", "emulate:precision=bf16"),
    ("nakdimon", "emulate:precision=fp16", "--tolerance", "0.0003"),
    ("aecmos_wide", "emulate:precision=bf16", "--tolerance", "0.003"),
    ("silero_vad_v6", "emulate:precision=fp16", "--tolerance", "0.0003"),
    ("dnsmos_2020", "emulate:precision=fp16", "--tolerance", "0.0003"),
    ("magika", "emulate:precision=bf16"),
    ("page_orientation", "emulate:precision=fp16", "--tolerance", "0.0005"),
    ("nakdimon", "emulate:precision=bf16", "--tolerance", "0.003"),
    ("silero_vad_op18", "emulate:precision=fp16", "--tolerance", "0.0003"),
    ("ocr5_direction", "emulate:precision=fp16", "--tolerance", "0.0003"),
    ("silero_vad_openvino", "openvino"),
    ("magika", "openvino"),
    ("silero_vad_v6", "emulate:precision=bf16", "--tolerance", "0.003"),
    ("captcha_detection", "emulate:precision=bf16"),
    ("rivagan_encoder", "emulate:precision=bf16", "--tolerance", "0.003"),
    ("hey_mycroft", "emulate:precision=fp16", "--tolerance", "0.0003"),
    ("resample_22_16", "emulate:precision=bf16", "--tolerance", "0.001"),
    ("aecmos_wide", "emulate:precision=fp16", "--tolerance", "0.0003"),
    ("swift_f0", "emulate:precision=bf16", "--tolerance", "0.003"),
    ("dnsmos_2020", "openvino:precision=f32"),
)  # fmt: skip


# Of models or limits that are in none of these, walked on the evening of that day before the rules
# were changed, priced once.
LATEST = (
    ("pulsevad_teacher", "emulate:precision=bf16", "--tolerance", "0.003"),
    ("minilm", "emulate:precision=fp16", "--tolerance", "0.0003"),
    ("spindles", "emulate:precision=fp16", "--tolerance", "0.0003"),
    ("romanizer_encoder", "emulate:precision=bf16", "--tolerance", "0.003"),
    ("attacut", "emulate:precision=bf16", "--tolerance", "0.003"),
    ("deepcut", "emulate:precision=fp16", "--tolerance", "0.0003"),
    ("captcha_crnn", "emulate:precision=fp16", "--tolerance", "0.0003"),
    ("seizure", "emulate:precision=bf16", "--tolerance", "0.003"),
    ("chars2vec", "emulate:precision=fp16", "--tolerance", "0.0003"),
    ("lac_words", "emulate:precision=bf16", "--tolerance", "0.003"),
    ("nmr_carbons", "emulate:precision=fp16", "--tolerance", "0.0003"),
    ("funcnet_pair", "emulate:precision=fp16", "--tolerance", "0.0003"),
    ("orinet", "emulate:precision=fp16", "--tolerance", "0.0003"),
    ("romanizer_decoder", "emulate:precision=fp16", "--tolerance", "0.0003"),
    ("minilm", "emulate:precision=bf16"),
    ("tashkeel_bilstm", "openvino"),
    ("captcha_crnn", "openvino"),
    ("pulsevad", "emulate:precision=fp16", "--tolerance", "0.0003"),
    ("gigaam_v2_conv", "emulate:precision=bf16", "--tolerance", "0.003"),
    ("wespeaker", "emulate:precision=fp16", "--tolerance", "0.0003"),
    ("spindles", "openvino"),
    ("seizure", "emulate:precision=fp16", "--tolerance", "0.0002"),
    ("slovorez", "emulate:precision=fp16", "--tolerance", "0.0003"),
    ("phase_trees", "emulate:precision=fp16"),
    ("attacut", "emulate:precision=fp16", "--flow", "precision", "--tolerance", "0.0003"),
)


# Of models that were in none of these but one, walked in the night after that while the rules were
# changed, and priced once when they stood; most were ended by their time.
NEWEST = (
    ("captcha_digits", "emulate:precision=bf16", "--tolerance", "0.003"),
    ("captcha_digits", "emulate:precision=fp16", "--tolerance", "0.0003"),
    ("captcha_gru", "emulate:precision=fp16", "--tolerance", "0.0003"),
    ("fsmn_vad", "emulate:precision=fp16", "--tolerance", "0.0003"),
    ("fsmn_vad", "int8"),
    ("khmer_words", "emulate:precision=fp16", "--tolerance", "0.0003"),
    ("minilm_int8", "emulate:precision=fp16", "--tolerance", "0.0003"),
    ("ocr6_recognition", "emulate:precision=fp16", "--tolerance", "0.0003"),
    ("pulsevad", "int8"),
    ("pulsevad_int8", "emulate:precision=bf16", "--tolerance", "0.003"),
    ("pulsevad_int8", "emulate:precision=fp16", "--tolerance", "0.0003"),
    ("puzzle_detection", "emulate:precision=bf16", "--tolerance", "0.003"),
    ("race_digits", "emulate:precision=bf16", "--tolerance", "0.003"),
    ("race_digits", "emulate:precision=fp16", "--flow", "precision", "--tolerance", "0.0003"),
    ("race_digits", "emulate:precision=fp16", "--tolerance", "0.0003"),
    ("slider", "emulate:precision=bf16", "--tolerance", "0.003"),
    ("tashkeel_rawi", "emulate:precision=bf16", "--tolerance", "0.003"),
    ("tashkeel_rawi", "emulate:precision=fp16", "--tolerance", "0.0003"),
    ("title_encoder", "emulate:precision=fp16", "--tolerance", "0.0003"),
    ("voice_embedder", "emulate:precision=bf16", "--tolerance", "0.003"),
    ("voice_embedder", "emulate:precision=fp16", "--tolerance", "0.0003"),
    ("voice_filter", "emulate:precision=bf16", "--tolerance", "0.003"),
)  # fmt: skip


# Of models that were in none of these, walked in the morning after that on a machine at a load of
# 20 and priced once.
MORNING = (
    ("molecules", "emulate:precision=fp16", "--tolerance", "0.0003"),
    ("nemo128", "emulate:precision=fp16"),
    ("puzzle_pair_overflow", "emulate:precision=fp16"),
    ("persian_encoder", "emulate:precision=bf16", "--tolerance", "0.003"),
    ("funcnet_head_cancellation", "emulate:precision=fp16"),
    ("silero_sequence", "emulate:precision=fp16", "--tolerance", "0.0003"),
    ("weather", "emulate:precision=fp16", "--tolerance", "0.0003"),
    ("oskut_windows_cancellation", "emulate:precision=fp16"),
    ("seizure_full", "emulate:precision=fp16", "--tolerance", "0.0003"),
    ("persian_encoder_cancellation", "emulate:precision=fp16"),
    ("spindles_inner", "emulate:precision=bf16", "--tolerance", "0.003"),
    ("molecules_cancellation", "emulate:precision=fp16"),
)

# Of models that were in none of these, walked in the forenoon after that while the rules for
# TensorRT were changed, and priced once when they stood; those for CPU engines are the same.
FORENOON = (
    ("walk_policy", "emulate:precision=fp16", "--tolerance", "0.0003"),
    ("speller", "emulate:precision=fp16", "--tolerance", "0.0003"),
    ("oskut_stacked", "emulate:precision=fp16", "--tolerance", "0.0003"),
    ("rawi_ensemble", "emulate:precision=bf16", "--tolerance", "0.003"),
    ("sung_pitch", "emulate:precision=fp16", "--tolerance", "0.0003"),
    ("page_layout", "emulate:precision=fp16", "--tolerance", "0.0003"),
    ("walk_policy", "emulate:precision=bf16", "--tolerance", "0.003"),
    ("kick_policy", "emulate:precision=bf16", "--tolerance", "0.003"),
    ("funcnet_head", "emulate:precision=fp16", "--tolerance", "0.0003"),
    ("seizure_full_overflow", "emulate:precision=fp16"),
    ("ocr6_detection", "emulate:precision=fp16", "--tolerance", "0.0003"),
    ("attacut_letters", "emulate:precision=bf16", "--tolerance", "0.003"),
    ("puzzle_pair", "emulate:precision=fp16", "--tolerance", "0.0003"),
    ("nsfw_score", "emulate:precision=fp16", "--tolerance", "0.0003"),
)  # fmt: skip


def divide(told: float, came: float) -> float:
    return max(told, 0.01) / max(came, 0.01)


def is_near(told: float, came: float) -> bool:
    """Within the factor, or by less than anybody notices."""
    return 1 / FACTOR <= divide(told, came) <= FACTOR or abs(told - came) < SOON


class Rest(msgspec.Struct, frozen=True):
    """What was said to be left of a step when this part of its seconds had passed, -1 where nothing
    was, and what came."""

    part: float
    left: float
    came: float
    least: float = -1.0
    most: float = -1.0

    @property
    def near(self) -> bool:
        return self.left >= 0 and is_near(self.left, self.came)

    @property
    def held(self) -> bool:
        """Whether what came lies between the ends, to a tenth of a second."""
        return self.least - 0.1 <= self.came <= self.most + 0.1


class Told(msgspec.Struct, frozen=True):
    """A step as its journal tells it: -1 where nothing was expected. ``engine``: the name before
    its options."""

    session: str
    engine: str
    step: str
    expected_probes: int
    probes: int
    expected: float  # seconds
    seconds: float
    least: float = -1.0
    most: float = -1.0
    rests: tuple["Rest", ...] = ()  # of a step of a second or more

    @property
    def told(self) -> bool:
        """Whether one number was said before it ran."""
        return not Cost(seconds=self.expected, least=self.least, most=self.most).open

    @property
    def counts(self) -> bool:
        """Whether it is one that anybody would wait for."""
        return max(self.expected if self.told else 0.0, self.seconds) >= SOON

    @property
    def held(self) -> bool:
        """Whether what came lies between the ends."""
        return self.least <= self.seconds <= self.most

    @property
    def first(self) -> "Rest | None":
        """The first number that was said while it ran."""
        return next((r for r in self.rests if r.left >= 0), None)

    @property
    def off(self) -> float:
        return divide(self.expected, self.seconds)

    @property
    def near(self) -> bool:
        return is_near(self.expected, self.seconds)


Fastest = dict[str, tuple[float, Measurement | None]]


def find_journals(folders: Iterable[Path]) -> list[Path]:
    """Every journal of a session below these folders; those of exported cases are not sessions."""
    alone = [f for f in folders if f.is_file()]
    found = (j for folder in folders for j in sorted(folder.rglob("journal.jsonl")))
    return [*alone, *(j for j in found if (j.parent / "session.json").is_file())]


def read(journals: Iterable[Path]) -> Iterator[Told]:
    """Every finished step as its journal has it."""
    for journal in journals:
        yield from read_session(journal)


def price_again(journals: Sequence[Path]) -> Iterator[Told]:
    """Every finished step as the rules price it now; of a session that was walked several times,
    once."""
    alike: dict[str, list[Path]] = {}
    for journal in journals:
        alike.setdefault(_name(journal), []).append(journal)
    for same in alike.values():
        fastest: Fastest = {}
        for journal in same:
            for key, seconds, answer in _list_answers(journal):
                if key not in fastest or seconds < fastest[key][0]:
                    fastest[key] = seconds, answer
        longest = max(same, key=lambda j: j.read_bytes().count(b'"kind":"step.finished"'))
        yield from price_session(longest, fastest)


def _list_answers(journal: Path) -> Iterator[tuple[str, float, Measurement | None]]:
    for event in journals.events(journal):
        if isinstance(event, e.ProbeFinished) and event.seconds > 0:
            yield event.key, event.seconds, event.measurement


def price_session(
    journal: Path, fastest: Mapping[str, tuple[float, Measurement | None]]
) -> Iterator[Told]:
    """The finished steps of a session. Each begins with what the journal knew then, ``fastest`` in
    place of what its probes took; what came is the sum of its own probes."""
    folder, state, store = journal.parent, State(), Store(journal.parent)
    whole = (folder / "session.json").is_file()
    problem = folders.read_problem(folder) if whole else _tell_problem(journal)
    flow = load(str(folder / "flow.yaml") if whole else "accuracy").flow
    experience = estimating.Experience(store)
    begun: dict[int, Told] = {}
    at_work: dict[int, _AtWork] = {}
    for event in journals.events(journal):
        with contextlib.suppress(
            journals.LostPart
        ):  # a part of a journal by itself; what is left of it does
            event = journals.resolve(event, store)
        if isinstance(event, e.ProbeFinished) and event.key in fastest:
            seconds, answer = fastest[event.key]
            event = msgspec.structs.replace(
                event, seconds=seconds, measurement=answer or event.measurement
            )
        before, state = state, advance(state, event)
        if isinstance(event, e.ProbeFinished) and event.run in at_work and event.seconds > 0:
            at_work[event.run].take(event.key, event.seconds, state)
        if isinstance(event, e.StepStarted) and (spec := STEPS.get(event.step)) is not None:
            ctx = step_context(
                problem, flow, spec, state, node=event.node, visit=event.visit, params=event.params
            )
            known = {**state.fingerprints, **event.fingerprints}
            made = estimating.estimate(spec, ctx, state, known, store, experience.of(state, ctx), 1)
            engine = event.engine.partition(":")[0]
            cost = made.cost
            begun[event.run] = Told(
                _name(journal),
                engine,
                event.step,
                cost.probes,
                0,
                cost.seconds,
                0.0,
                cost.least,
                cost.most,
            )
            at_work[event.run] = _AtWork(spec, ctx, made, known, state)
        elif isinstance(event, e.StepFinished) and event.run in begun:
            work = at_work.pop(event.run)
            yield msgspec.structs.replace(
                begun[event.run],
                probes=event.probes - event.cached,
                seconds=round(sum(work.took.values()), 3),
                rests=tuple(work.tell_rests(before, store, experience)),
            )


class _AtWork:
    """A step between its beginning and its end: what its own probes took, and what the journal knew
    after each."""

    def __init__(
        self, spec: Any, ctx: Any, made: estimating.Estimate, known: dict[str, str], state: State
    ) -> None:
        self.spec, self.ctx, self.made, self.known = spec, ctx, made, known
        self.took: dict[str, float] = {}
        self.states = [state]

    def take(self, key: str, seconds: float, state: State) -> None:
        self.took[key] = seconds
        self.states.append(state)

    def tell_rests(
        self, end: State, store: Store, experience: estimating.Experience
    ) -> Iterator[Rest]:
        """What a person who watched was told on the way."""
        total = sum(self.took.values())
        if total < SOON:
            return
        said = dict(follow(self.spec, self.ctx, end, {**end.fingerprints, **self.known}, store))
        passed, at = 0.0, iter([i / GRID for i in range(GRID)])
        part = next(at)
        for i, (key, seconds) in enumerate(self.took.items()):
            while part is not None and passed + seconds > part * total:
                note = said.get(key, Note(""))
                found = experience.of(self.states[i], self.ctx)
                self.made = estimating.look_again(
                    self.made, self.spec, self.ctx, self.states[i], store
                )
                probe = asked_probe(self.states[i + 1], key, store)
                waiting, kind = (
                    part * total - passed,
                    estimating.classify(probe, self.ctx, end) if probe else None,
                )
                rest = estimating.estimate_rest(self.made, found, i, note, waiting, kind)
                yield Rest(part, rest.seconds, (1 - part) * total, rest.least, rest.most)
                part = next(at, None)
            passed += seconds


def follow(
    spec: Any, ctx: Any, state: State, known: dict[str, str], store: Store
) -> Iterator[tuple[str, Note]]:
    """The probes of a step in the order in which it asks them, each with what it says of its
    progress then."""
    steps, answer = spec.run(ctx), None
    asked: dict[str, None] = {}
    note, noted_at = Note(""), 0
    while True:
        try:
            yielded = steps.send(answer)
        except (
            StopIteration,
            StepRefused,
        ):  # a graph that stands in for another may be none for this step
            return
        answer = None
        if isinstance(yielded, Note):
            note, noted_at = yielded, len(asked)
            continue
        key = probe_key(yielded, known)
        measurement = known_measurement(state, key, store)
        if measurement is None:
            return
        if key not in asked:
            yield key, left_of(note, len(asked) - noted_at)
        asked[key] = None
        answer = drive.answer_for_step(yielded, measurement, store)


def _name(journal: Path) -> str:
    return journal.parent.name if journal.name == "journal.jsonl" else journal.stem


def _tell_problem(journal: Path) -> Problem:
    """The engines of a journal by itself."""
    begun = next(event for event in journals.events(journal) if isinstance(event, e.StepStarted))
    return Problem(model="", engine=begun.engine, reference=begun.reference)


def stand_in(session: Path) -> None:
    """The graph of this session in place of any that is not at hand."""
    indexes = (
        k.measurement.artifacts.get("index")
        for k in folders.load(session).known.values()
        if k.measurement
    )
    graph = next(drive.index_of(session, digest) for digest in reversed([d for d in indexes if d]))
    given = drive.index_of

    def index_of(root: Any, digest: str) -> GraphIndex:
        try:
            return given(root, digest)
        except OSError:
            return graph

    drive.index_of = estimating.index_of = index_of


def read_session(journal: Path) -> Iterator[Told]:
    begun: dict[int, dict[str, object]] = {}
    for line in journal.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue  # a kill left half of it
        if event.get("kind") == "step.started":
            begun[event["run"]] = event
        elif event.get("kind") == "step.finished" and (start := begun.get(event["run"])):
            said, engine = (
                start.get("expected") or {},
                str(start.get("engine", "?")).partition(":")[0],
            )
            yield Told(
                _name(journal),
                engine,
                str(start["step"]),
                int(said.get("probes", -1)),
                int(event.get("probes", 0)) - int(event.get("cached", 0)),
                float(said.get("seconds", -1)),
                float(event.get("seconds", 0.0)),
                float(said.get("least", -1)),
                float(said.get("most", -1)),
            )


FEW = 5  # probes more or less that nobody notices


def counted_right(t: Told) -> bool:
    """Whether as many probes came as were planned, within the factor: that does not depend on how
    busy the machine is."""
    few, many = sorted((t.expected_probes, t.probes))
    return many - few <= FEW or many <= FACTOR * few


def table(told: Sequence[Told]) -> str:
    """One row a step and engine, where one of them is of interest to anybody: of those that count
    how many were told a number before they ran, and how many when a tenth of their seconds had
    passed; each with how many of these were near."""
    rows = [
        "| engine | step | times | probes | seconds | count | told, near | furthest | between its ends | after a tenth, near |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for engine, step in dict.fromkeys(
        (t.engine, t.step) for t in sorted(told, key=lambda t: t.engine)
    ):
        alike = [t for t in told if (t.engine, t.step) == (engine, step)]
        known = [t for t in alike if t.expected >= 0]
        counted = [t for t in alike if t.counts]
        if not counted:
            continue
        numbers, ranges, _ = _sort_told(counted)
        soon = [r for t in counted for r in t.rests if r.part == PARTS[0] and r.left >= 0]
        worst = max(numbers, key=lambda t: max(t.off, 1 / t.off), default=None)
        rows.append(
            f"| {engine} | {step} | {len(alike)} "
            f"| {sum(t.expected_probes for t in known) if known else '?'} / {sum(t.probes for t in known or alike)} "
            f"| {f'{sum(t.expected for t in known):.1f}' if known else '?'} / {sum(t.seconds for t in known or alike):.1f} "
            f"| {len(counted)} | {f'{len(numbers)}, {sum(t.near for t in numbers)}' if numbers else ''} "
            f"| {f'{worst.expected:.1f} / {worst.seconds:.1f}' if worst else ''} "
            f"| {f'{sum(t.held for t in ranges)} of {len(ranges)}' if ranges else ''} "
            f"| {f'{len(soon)}, {sum(r.near for r in soon)}' if soon else ''} |"
        )
    return "\n".join(rows)


def _sort_told(counted: Sequence[Told]) -> tuple[list[Told], list[Told], list[Rest]]:
    """Those that were told a number before they ran; those that were told the ends between which it
    lies; and of these and of those that were told nothing the first number while they ran."""
    numbers = [t for t in counted if t.told]
    ranges = [t for t in counted if not t.told and t.most >= 0]
    return numbers, ranges, [t.first for t in counted if not t.told and t.first is not None]


def summary(told: Sequence[Told]) -> str:
    counted = [t for t in told if t.counts]
    numbers, ranges, later = _sort_told(counted)
    silent = [t for t in counted if t.expected < 0]
    first = sum(t.step == "compare" for t in silent)
    planned = [t for t in told if t.expected_probes > 0]
    sessions = len({t.session for t in told})
    said = [
        f"{count(sessions, 'session')} with {count(len(told), 'step')}, of which {len(counted)} took a second or more, or were "
        f"said to. **Before it ran** {_say_part(len(numbers), len(counted))} were told one number, and of these "
        f"{_say_part(sum(t.near for t in numbers), len(numbers))} came within a factor of two, or by less than a second. "
        f"{len(ranges)} were told two ends, and {sum(t.held for t in ranges)} came between them; {len(silent)} were told no "
        f"seconds, {first} of them the first look at the model."
    ]
    if any(t.rests for t in told):
        soon = statistics.median(r.part for r in later) if later else 0.0
        said.append(
            f"**While it ran** {len(later)} of these {len(counted) - len(numbers)} were told one, half of them before "
            f"{100 * soon:.0f} % of their seconds had passed, and {sum(r.near for r in later)} of these were right so when it "
            f"was said first. {say_rests(counted)}"
        )
    said.append(
        f"By probes, which no load changes, {sum(map(counted_right, planned))} of {len(planned)} steps that had some to ask came "
        f"within a factor of two or {FEW} probes."
    )
    return " ".join(said)


def _say_part(part: int, whole: int) -> str:
    return f"{part} of {whole}{f' ({100 * part / whole:.0f} %)' if whole else ''}"


def say_rests(told: Sequence[Told]) -> str:
    """How good it is what a person is told who watches, of steps of a second or more."""
    watched = [t for t in told if t.seconds >= SOON and t.rests]
    said = []
    for part in PARTS:
        rests = [r for t in watched for r in t.rests if r.part == part]
        numbers = [r for r in rests if r.left >= 0]
        ranges = [r for r in rests if r.left < 0 <= r.most]
        near, held = sum(r.near for r in numbers), sum(r.held for r in ranges)
        said.append(
            f"after {100 * part:.0f} % of the seconds {len(numbers)} of {len(rests)} were told one, {near} right so, and "
            f"{len(ranges)} two ends, {held} right so"
        )
    return f"{', '.join(said)[0].upper()}{', '.join(said)[1:]}."


def walk(folder: Path) -> dict[str, Path]:
    """Walk what was not walked yet, one session after the other. The folder of each set."""
    wheels = folder / "models"
    sets = {
        "forenoon": dict(_of_the_field(wheels, FORENOON)),
        "morning": dict(_of_the_field(wheels, MORNING)),
        "newest": dict(_of_the_field(wheels, NEWEST)),
        "latest": dict(_of_the_field(wheels, LATEST)),
        "new": dict(_of_the_field(wheels, NEW)),
        "fitted": {**FITTED, **dict(_of_the_field(wheels, FITTED_FIELD))},
        "held out": dict(_of_the_field(wheels, HELD)),
        "walked last": dict(_of_the_field(wheels, LAST)),
        "afterwards": dict(_of_the_field(wheels, AFTERWARDS)),
    }
    for turn in range(TIMES):
        for name, sessions in sets.items():
            for session, words in sessions.items():
                place = folder / name.replace(" ", "-") / str(turn) / session
                if not place.exists():
                    _walk_one(place, words)
    return {name: folder / name.replace(" ", "-") for name in sets}


def _of_the_field(
    wheels: Path, wanted: Iterable[Sequence[str]]
) -> Iterator[tuple[str, tuple[object, ...]]]:
    """A session of each: its name, and what to call. ``wanted``: model, engine, further options."""
    for name, engine, *more in wanted:
        model = models.BY_NAME[name]
        wheels.mkdir(parents=True, exist_ok=True)
        models.fetch(wheels, [name])
        at, path = campaign.prepare(wheels, model), wheels / model.file
        inputs = [word for i in range(model.given) for word in ("--inputs", at / f"given-{i}.npz")]
        spec, flow = engine, more
        if engine == campaign.INT8:
            flow = ["--flow", "quantization", "--reference", f"onnxruntime:model={path}"]
            spec, path = "onnxruntime", campaign.quantized(wheels, model)
        tag = "-".join([engine, *more]).replace(":", "-").replace("=", "-")
        yield f"{name}--{tag}", ("run", path, "--engine", spec, *inputs, *flow, "--jobs", "1")


def _walk_one(place: Path, words: Sequence[object]) -> None:
    """With seconds of the processor, on one core: two threads that wait for each other spin."""
    place.parent.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent / "processor")}
    environment["XDG_STATE_HOME"] = str(place.parent / "state")
    core = str(max(os.sched_getaffinity(0)))
    command = [
        sys.executable,
        "-m",
        "narrowdown",
        *map(str, words),
        "--session",
        str(place),
        "--display",
        "none",
    ]
    process = subprocess.Popen(
        ["taskset", "-c", core, *command], cwd=ROOT, env=environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        process.wait(LONGEST)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        process.wait(60)
    print(f"{place.name}: exit {process.returncode}", file=sys.stderr, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--as-said", action="store_true")
    parser.add_argument("--graph", type=Path)
    parser.add_argument("--page", type=Path)
    args = parser.parse_args(argv)
    if args.graph:
        stand_in(args.graph.resolve())
    sets = (
        {"": args.folders}
        if args.folders
        else {n: [f] for n, f in walk(ROOT / "build" / "estimates").items()}
    )
    parts = []
    for name, folders_of in sets.items():
        found = find_journals(folders_of)
        told = list(read(found) if args.as_said else price_again(found))
        parts += [*([f"**{name.capitalize()}**"] if name else []), table(told), summary(told)]
    text = "\n\n".join(parts)
    print(text)
    if args.page:
        before, _, rest = args.page.read_text(encoding="utf-8").partition(BEGIN)
        after = rest.partition(END)[2]
        args.page.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
