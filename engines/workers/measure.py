"""Measure: build a candidate, run it, compare it with the captured reference, transplant what it
gave into the reference run."""

import contextlib
import hashlib
import statistics
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

import msgspec
import numpy as np
from onnx import ModelProto

from narrowdown.engines.array import Array
from narrowdown.engines.backends.base import BuildRequest, Built, EngineFault
from narrowdown.engines.backends.builds import Kept, build, close_built, serve, weigh_built
from narrowdown.engines.compare import metrics, refusal
from narrowdown.engines.compare.answers import CHUNK, answer
from narrowdown.engines.data import postprocess, samples, score, tactic_replay
from narrowdown.engines.data.samples import Span
from narrowdown.engines.data.scripting import ScriptProblem
from narrowdown.engines.data.sequences import Loop, take_back
from narrowdown.engines.graph import ModelProblem, external, load, rewrites
from narrowdown.engines.graph.cut import Cut
from narrowdown.engines.graph.places import holds_places
from narrowdown.engines.graph.quantized import is_quantized
from narrowdown.engines.graph.random_nodes import draw_numbers
from narrowdown.engines.graph.ranges import ALL, decode, encode
from narrowdown.engines.probe import (
    APART,
    FIXED_SIZES,
    HUGE,
    STEP,
    Candidate,
    Measure,
    Measurement,
    SampleResult,
    Score,
)
from narrowdown.engines.sources import POSTPROCESSING, SCORING
from narrowdown.engines.spec import parse
from narrowdown.engines.store import Store
from narrowdown.engines.workers import artifact_files, captures, variation, workaround_model
from narrowdown.engines.workers.histograms import summarize_values
from narrowdown.engines.workers.nudge import nudged_feeds, nudged_weights
from narrowdown.engines.workers.part import Feed, Part, Say, arrays_by_id, feeds_by_name
from narrowdown.engines.workers.righting import right_nodes, sever_righted

WRITTEN = "worked-around.onnx"
_Pair: TypeAlias = tuple[Array | None, Array]  # what the engine gave, what the reference gave
_Value = TypeVar("_Value")


@dataclass
class _Ready:
    """A built candidate. ``seconds`` is what its build took, however often it is used. ``held``:
    bytes that it gives out in a run, which an engine may go on holding. ``facts``: of what was
    written."""

    part: Cut
    built: Built
    seconds: float
    held: int = 0
    facts: Mapping[str, Any] = field(default_factory=dict)


def _is_open(model: ModelProto) -> bool:
    """Whether a dimension of an input has neither size nor name, as cuts declare what is open."""
    dims = (d for i in model.graph.input for d in i.type.tensor_type.shape.dim)
    return any(not d.HasField("dim_value") and not d.dim_param for d in dims)


def _keep_builds() -> Kept[_Ready]:
    """A store of builds. One weighs as its weights, of which an engine may hold a copy, and as what
    it gives out."""
    return Kept(
        lambda ready: close_built(ready.built),
        lambda ready: weigh_built(ready.part.model) + ready.held,
    )


_cuts: Kept[Cut] = Kept()
_builds = _keep_builds()
# Apart from what is run with them: that may not be closed meanwhile.
_parts = _keep_builds()
# What engines said to builds for many shapes (``_build_key``), as a status and a sentence: these
# are not tried again.
_refused: dict[bytes, tuple[str, str]] = {}
_FEWER = ("build-failed", "out-of-memory", "refused")  # what fewer shapes may cure


def measure(probe: Measure, store: Store, progress: Say) -> Measurement:
    """Answer the probe. Raises ``EngineFault``, ``EngineMissing``, ``ReferenceFailed``,
    ``ModelProblem``, ``InputProblem``."""
    measuring = _Measuring(probe, store, progress)
    try:
        return measuring.answer()
    except EngineFault as fault:
        fault.words = measuring.words_of(fault)
        raise
    finally:
        if measuring.builds is not _builds:
            measuring.builds.clear()


class _Measuring:
    """One Measure probe on its way."""

    def __init__(self, probe: Measure, store: Store, progress: Say) -> None:
        self.store, self.progress = store, progress
        self.model = load.load(store, probe.model)
        self.index = self.model.index
        self.probe = probe = sever_righted(self.index, probe) if probe.righted else probe
        self.engine = captures.make_engine(probe.engine)
        self.part = Part(
            store, self.model, probe.candidate, probe.inputs, probe.reference, progress
        )
        self.keep = frozenset(
            range(len(self.index.nodes)) if probe.keep == ALL else decode(probe.keep)
        )
        self.notes: list[str] = []
        self.marked_feeds: tuple[int, ...] = ()  # cut tensors that are to be scored as they are fed
        self.marks = self._choose_marks()
        some = (
            probe.effect_on not in ("", ALL) and not probe.postprocess
        )  # a script is given all of them
        self.final = decode(probe.effect_on) if some else self.index.outputs
        placed = (t for t in self.final if holds_places(self.index, t) and not probe.postprocess)
        self.of_places = {self.index.tensors[t].name for t in placed}
        # Inner tensors of a cut are compared as they are.
        self.finished = probe.candidate.nodes == ALL and set(self.part.judged) == set(
            self.index.outputs
        )
        self.spans = self._spans_shapes()
        self.captured = self._is_captured()
        # Repeated looks are at a build of their own: what an engine remembers of earlier runs is no
        # part of the answer.
        self.builds = _builds if probe.runs <= 1 else _keep_builds()
        self.build_seconds = self.run_seconds = self.median_seconds = 0.0
        self.artifacts: dict[str, str] = {}
        self.stepped: _Ready | None = None  # the build of the last step of a sequence
        count = max(0, probe.runs)
        self.results: list[list[SampleResult]] = [[] for _ in range(count)]  # by run
        self.differs = [False] * count  # from the first run, in any bit
        self.facts: dict[str, Any] = {"runs": count} if count > 1 else {}
        self.nodes = 0

    def _spans_shapes(self) -> bool:
        """Whether one build may serve feeds of many shapes. A tensor that is fed from outside has
        as many rows as the captured one."""
        probe = self.probe
        return (
            self.engine.info.spans
            and not (probe.written or probe.rewrite)
            and probe.candidate.nodes == ALL
            and not (probe.candidate.edits or decode(probe.candidate.severed))
        )

    def _is_captured(self) -> bool:
        """Whether what the reference computes, which is captured, is the answer: of its own values,
        seen without running it once more, and of an engine that computes the same where every node
        is kept."""
        probe = self.probe
        own = probe.engine == probe.reference and bool(probe.marks) and not probe.keep
        return (
            (own or self._is_kept_whole())
            and probe.runs == 1
            and probe.candidate == Candidate()
            and not (probe.attempt or probe.nudge or probe.vary or probe.record or probe.save)
            and not (probe.righted or probe.written or probe.rewrite)
        )

    def answer(self) -> Measurement:
        serve(f"{self.probe.engine} {self.probe.reference}")
        compared = bool(self.results) and not self.probe.vary
        if compared and captures.is_heavy(self.model.proto):
            # The reference answers for all samples, then the engine is built.
            for sample in self.probe.samples[1:]:
                self.part.expected(sample, self.part.feed(sample), self._compared_tensors)
        for sample in self.probe.samples:
            loop = samples.find_loop(self.store, self.probe.inputs, sample)
            if loop and compared and not self.marks and self.probe.candidate.nodes == ALL:
                self._walk_sequence(sample, *loop)
                continue
            feed = self.part.feed(sample)
            if self.probe.feed == "stored":
                self._round_as_stored(feed)
            self._right(feed)
            expected = self.part.expected(sample, feed, self._compared_tensors) if compared else {}
            if self.captured:
                self.results[0].extend(self._compare_outputs(sample, expected, expected, feed))
                self.nodes = len(self.part.nodes)
                continue
            try:
                ready = self._build(feed, sample)
            except EngineFault as fault:
                if not self.probe.save:
                    raise
                # What an engine refuses is a case too: the model and what it would have been fed.
                return self._keep_refused(fault, feed, expected)
            self._note_build(ready)
            if self.probe.vary:
                varied = self._vary_way(ready, sample, feed)
                self.facts["follows"] = self.facts.get("follows", False) or varied.follows
                self.results[0].extend(
                    self._compare_outputs(sample, varied.second, varied.first, feed)
                )
                continue
            first = self._run_all(ready, sample, feed, expected)
            self._save_case(ready, feed, expected, first)
        return Measurement(
            results=tuple(self.results[0]) if self.results else (),
            # Hundreds of runs are mostly one and the same: those that differ from the first are
            # kept.
            runs=tuple(
                tuple(r) for r, other in zip(self.results, self.differs, strict=True) if other
            ),
            varies=any(self.differs),
            facts=msgspec.to_builtins(self.facts),
            artifacts=self.artifacts,
            notes=tuple(dict.fromkeys(self.notes)),
            build_seconds=self.build_seconds,
            run_seconds=self.run_seconds,
            median_seconds=self.median_seconds,
            nodes=self.nodes,
        )

    def _walk_sequence(self, sample: str, loop: Loop, steps: int) -> None:
        """Run the steps, each on what the engine gave in the one before; one result of all of them
        a run. Raises ``EngineFault``."""
        held = {*self.probe.held, *(() if loop.own else loop.tokens)}
        held |= loop.inputs if "*" in held else set()
        first: list[dict[str, _Pair]] = []
        for run, results in enumerate(self.results):
            pairs: list[dict[str, _Pair]] = []
            fed: dict[int, Array] = {}
            begun, before = time.monotonic(), self.run_seconds
            for number in range(steps):
                self.progress(f"step {number + 1} of {steps}")
                name = f"{sample}/{STEP}{number}"
                feed = self.part.feed(name)
                feed.arrays |= fed
                self._right(feed)
                expected = self.part.expected(name, feed, self.part.judged)
                actual = expected if self.captured else self._run_step(name, feed, expected, run)
                own = {t: (actual.get(t), expected[t]) for t in self.part.judged}
                pairs.append(self._postprocess_pairs(own))
                back = take_back(loop, self._by_name(feed.arrays), self._by_name(actual))
                fed = {self.index.by_name[n]: a for n, a in back.items() if n not in held}
            # What one more sequence takes: the builds of its sizes as well.
            self.run_seconds = before + time.monotonic() - begun
            first = first or pairs
            if run and all(map(_same_step, first, pairs)):
                results.append(self.results[0][-1])
                continue
            self.differs[run] |= run > 0
            results.append(SampleResult(sample, outputs=self._score_sequence(pairs)))
            if self.probe.curve and run == 0:
                chosen = set(loop.tokens.values())  # of which alone the curve tells answers
                self.facts.setdefault("curve", {})[sample] = [
                    SampleResult(f"{sample}/{STEP}{k}", outputs=self._score_sequence([p], chosen))
                    for k, p in enumerate(pairs)
                ]

    def _run_step(
        self, name: str, feed: Feed, expected: Mapping[int, Array], run: int
    ) -> dict[int, Array]:
        """One step, by the build of the step before: many engines run any size where the model
        leaves it open. What cannot is built for each size. Raises ``EngineFault``."""
        if self.stepped is not None:
            with contextlib.suppress(EngineFault):
                return self._run(self.stepped, feed, run)
        self.stepped = self._build(feed, name)
        self._note_build(self.stepped)
        actual = self._run(self.stepped, feed, run)
        self._save_case(self.stepped, feed, expected, actual)
        return actual

    def _score_sequence(
        self, pairs: Sequence[Mapping[str, _Pair]], answered: Collection[str] | None = None
    ) -> tuple[Score, ...]:
        """By output, over these steps. ``answered``: outputs that give answers; None: all."""
        scores = []
        for name in pairs[0]:
            actual, expected = zip(*(pair[name] for pair in pairs), strict=True)
            score, mine, theirs = metrics.score_steps(name, actual, expected)
            if answered and name in answered:  # a token is chosen by the last row
                mine, theirs = (x[:, -1:] if x.ndim == 3 else x for x in (actual[0], expected[0]))
            if answered is None or name in answered:
                score = _with_answer(score, mine, theirs, name not in self.of_places)
            scores.append(score)
        return tuple(scores)

    @property
    def _compared_tensors(self) -> tuple[int, ...]:
        return (*self.part.judged, *self.marks)

    def _note_build(self, ready: _Ready) -> None:
        """What is said of a build beside the numbers of its runs."""
        probe = self.probe
        self.nodes = sum(n >= 0 for n in ready.part.node_ids)
        self.facts.update(ready.facts)
        # Said of the whole model: how many nodes a provider of ONNX Runtime took, that an emulation
        # rounds nothing, and the layers that a compiler made of which nodes.
        of_whole = ("taken", "untouched", "layers")
        self.facts |= {k: ready.built.facts[k] for k in of_whole if k in ready.built.facts}
        if probe.marks and probe.candidate.nodes != ALL:
            self.facts["weights"], self.facts["least"] = self._span_weights()
        if probe.record or probe.runs == 0 or (probe.keep and probe.save):
            self.facts["build"] = dict(ready.built.facts)

    def _run_all(
        self, ready: _Ready, sample: str, feed: Feed, expected: Mapping[int, Array]
    ) -> dict[int, Array]:
        """Run and compare one build as often as is asked for. Returns what the first run gave; of
        the others those that give the same to the bit have its results."""
        first: dict[int, Array] = {}
        compared: list[SampleResult] = []
        took: list[float] = []
        count = len(self.results)
        for run, results in enumerate(self.results):
            self.progress("running" if count == 1 else f"running {run + 1} of {count}")
            if run:
                self._right(feed)
            before = self.run_seconds
            actual = self._run(ready, feed, run)
            took.append(self.run_seconds - before)
            if run == 0:
                first = actual
                if probe_scores := self._score_outputs(sample, actual, expected, feed):
                    self.facts.setdefault("scores", {})[sample] = probe_scores
                compared = self._compare_outputs(sample, actual, expected, feed)
            elif any(not _same_bits(first[t], a) for t, a in actual.items() if t in first):
                self.differs[run] = True
                results.extend(self._compare_outputs(sample, actual, expected, feed))
                continue
            results.extend(compared)
        self.median_seconds += statistics.median(took) if len(took) > 1 else 0.0
        return first

    def _is_kept_whole(self) -> bool:
        """Whether every node is kept, so that the engine computes what the reference does. Pairs of
        a quantized model that are kept may go, and nodes that draw numbers give others in each
        run."""
        same = self.engine.info.kept_whole == str(parse(self.probe.reference)) and len(
            self.keep
        ) == len(self.index.nodes)
        return same and not is_quantized(self.index) and not draw_numbers(self.model.node_protos)

    def words_of(self, fault: EngineFault) -> tuple[str, ...]:
        """Of the engine's message, the model's own names left out."""
        names = {t.name for t in self.index.tensors} | {n.name for n in self.index.nodes}
        return refusal.words(str(fault), names.union(self.model.engine_names))

    def _span_weights(self) -> tuple[dict[str, float], dict[str, float]]:
        """The largest finite magnitude of each float weight that the part reads, by name, and the
        smallest that is not 0, where there is one; those too large to be looked at left out."""
        read = {t for n in self.part.nodes for t in self.index.nodes[n].reads}
        kinds = [self.index.tensors[t] for t in sorted(read)]
        looked = [t for t in kinds if t.kind == "weight" and workaround_model.is_looked_at(t)]
        values = {
            t.name: np.abs(load.read_weight(self.model, t.id).astype(np.float64)) for t in looked
        }
        finite = {name: a[np.isfinite(a)] for name, a in values.items()}
        largest = {name: float(a.max(initial=0.0)) for name, a in finite.items()}
        return largest, {
            name: float(a[a > 0].min()) for name, a in finite.items() if largest[name] > 0
        }

    def _choose_marks(self) -> tuple[int, ...]:
        if not self.probe.marks:
            return ()
        made = {t for n in self.part.nodes for t in self.index.nodes[n].outputs}
        wanted = made if self.probe.marks == ALL else made.intersection(decode(self.probe.marks))
        if self.probe.marks != ALL:
            self.marked_feeds = tuple(
                sorted(set(decode(self.probe.marks)).intersection(self.part.needed) - made)
            )
        skipped = [t for t in wanted if self.index.tensors[t].dtype in ("sequence", "optional")]
        if skipped:
            self.notes.append(f"{len(skipped)} tensors hold sequences and cannot be observed.")
        return tuple(sorted(wanted.difference(self.part.judged, skipped)))

    def _round_as_stored(self, feed: Feed, tensors: Iterable[int] = ()) -> None:
        """Round cut tensors, or these, as the engine would have stored them. What a kept node hands
        to a kept node stays FP32."""
        storage = load.np_dtype(self.engine.info.storage)
        inside = set(self.part.nodes)
        for t, value in {
            t: feed.arrays[t] for t in tensors or feed.arrays if t in feed.arrays
        }.items():
            info = self.index.tensors[t]
            if info.kind == "input" or not _is_wider(value.dtype, storage):
                continue
            if info.producer in self.keep and any(
                r in self.keep and r in inside for r in self.index.readers[t]
            ):
                continue
            stored, distance, overflows, vanishes = _round(value, storage)
            if distance > 0 or overflows:
                feed.exact[t], feed.arrays[t] = value, stored
                feed.rounded[info.name] = distance
            if overflows:
                feed.unrepresentable.append(info.name)
            if vanishes:
                feed.vanished.append(info.name)

    def _right(self, feed: Feed) -> None:
        """Feed what the righted nodes make of what the engine gives them now."""
        if not self.probe.righted:
            return
        self.progress("computing nodes by the reference")
        feed.righted = right_nodes(
            self.index, self.probe, feed, (*self.part.judged, *self.marks), self._run_stage
        )
        feed.arrays |= {t: a for t, a in feed.righted.items() if t in feed.arrays}
        names = {self.index.tensors[t].name for t in feed.righted}
        feed.exact = {t: a for t, a in feed.exact.items() if t not in feed.righted}
        feed.rounded = {name: lost for name, lost in feed.rounded.items() if name not in names}
        feed.unrepresentable = [name for name in feed.unrepresentable if name not in names]
        feed.vanished = [name for name in feed.vanished if name not in names]
        if self.probe.feed == "stored":
            self._round_as_stored(feed, feed.righted)

    def _run_stage(
        self, spec: str, candidate: Candidate, fed: Mapping[int, Array]
    ) -> dict[int, Array]:
        """What a part gives on the engine under test, or on the reference. Raises ``EngineFault``,
        ``ReferenceFailed``."""
        probe = self.probe
        part = Part(self.store, self.model, candidate, probe.inputs, probe.reference, self.progress)
        needed = {t: fed[t] for t in part.needed}
        if spec == probe.engine:
            choices = {"attempt": probe.attempt, "force": probe.force, "forbid": probe.forbid}
            return self._run_part(spec, part, needed, choices=choices)
        try:
            return self._run_part(spec, part, needed)
        except EngineFault as error:
            raise captures.ReferenceFailed(
                f"The reference cannot run a part of the model: {error}"
            ) from error

    def _run_part(
        self,
        spec: str,
        part: Part,
        values: Mapping[int, Array],
        given: Mapping[int, Array] = MappingProxyType({}),
        choices: Mapping[str, Any] = MappingProxyType({}),
    ) -> dict[int, Array]:
        """What a part gives on an engine, fed ``values``, of which its constants are baked in, and
        ``given``, of which none is: one build of the part serves all that an engine gives. Raises
        ``EngineFault``."""
        constants = {t: values[t] for t in sorted(part.constants(values))}
        arrays = {**given, **{t: a for t, a in values.items() if t not in constants}}
        engine = captures.make_engine(spec).info
        question = (engine.fingerprint, engine.spec, self.probe.model, part.candidate, {**choices})

        def make() -> _Ready:
            piece = part.cut(arrays, constants)
            return _Ready(piece, part.build(spec, piece, arrays, **choices), 0.0)

        ready = _parts.get(_build_key(question, arrays, constants), make)
        return arrays_by_id(ready.part, ready.built.run(feeds_by_name(ready.part, arrays)))

    def _list_spans(self, sample: str) -> list[Span]:
        """What one build may serve, the most first: every sample of the inputs, as an engine takes
        minutes for a build and texts have as many lengths; the rows of this sample's feed, alone
        and together. Every sample asks for the same build."""
        if not self.spans:
            return []
        all_of_them = samples.find_span(self.store, self.probe.inputs)
        rows = samples.find_span(self.store, self.probe.inputs, sample)
        found = [
            s for s in (all_of_them, rows) if s and all(self._is_open(*dim) for dim in s.dims())
        ]
        return [s for i, s in enumerate(found) if s not in found[:i]]

    def _is_open(self, name: str, dim: int) -> bool:
        """Whether the model leaves this dimension of an input open."""
        shape = (
            self.index.tensors[self.index.by_name[name]].shape
            if name in self.index.by_name
            else None
        )
        return bool(shape) and dim < len(shape) and shape[dim] < 0  # type: ignore[arg-type, index]

    def _build(self, feed: Feed, sample: str) -> _Ready:
        """The build for these feeds. What does not build for many shapes is built for fewer, in the
        end for the one that is fed."""
        for span in self._list_spans(sample):
            try:
                return self._build_for(feed, span)
            except EngineFault as fault:
                if fault.status not in _FEWER:
                    raise
                self.notes.append(
                    f"It could not be built for several shapes at once, so it was built for those fed: {fault}"
                )
        return self._build_for(feed, None)

    def _build_for(self, feed: Feed, span: Span | None) -> _Ready:
        probe = self.probe
        what = (probe.model, probe.candidate, self.part.judged, self.marks, probe.runs == 0)
        how = (
            self.engine.info.fingerprint, self.engine.info.spec, probe.keep, probe.attempt, probe.record, probe.force,
            probe.forbid, probe.reference, probe.nudge == "weights", span, probe.written, probe.rest,
            probe.rewrite, probe.rewrite_at,
        )  # fmt: skip
        fed = (
            {t: a.reshape(-1)[:0] for t, a in feed.arrays.items()} if span else feed.arrays
        )  # the same for any shape
        name = _build_key((*what, *how), fed, feed.constants)
        if name in _refused:
            raise EngineFault(*_refused[name])

        def cut() -> Cut:
            return self.part.cut(feed.arrays, feed.constants, self.marks, opened=True)

        def make() -> _Ready:
            self.progress("building")
            begun = time.monotonic()
            part = _cuts.get(_build_key((*what, span), fed, feed.constants), cut)
            if probe.nudge == "weights":
                moved = nudged_weights(part.model, self.model.weights_dir, probe.attempt)
                part = replace(part, model=moved)
            if probe.written:
                return self._read_back(feed, part, begun)
            if probe.rewrite:
                return self._rewrite(feed, part, begun)
            captures.make_room(part.model)

            def build_part(piece: Cut) -> Built:
                return self.part.build(
                    probe.engine, piece, feed.arrays, self.keep, attempt=probe.attempt, record=probe.record,
                    force=probe.force, forbid=probe.forbid, say=self.progress, span=span,
                )  # fmt: skip

            try:
                built = build_part(part)
            except EngineFault:
                # What the graph around it told the engine of a size is lost where it is cut, and
                # the engine may need it.
                if probe.runs == 0 or probe.candidate.nodes == ALL or not _is_open(part.model):
                    raise
                part = self.part.cut(feed.arrays, feed.constants, self.marks)
                built = build_part(part)
            held = sum(
                max(0, self.index.tensors[t].bytes) for t in (*self.part.judged, *self.marks)
            )
            return _Ready(part, built, time.monotonic() - begun, held)

        try:
            ready = self.builds.get(name, make)
        except EngineFault as fault:
            if span and fault.status in _FEWER:
                _refused[name] = fault.status, str(fault)
            raise
        self.build_seconds = max(self.build_seconds, ready.seconds)
        return ready

    def _read_back(self, feed: Feed, part: Cut, begun: float) -> _Ready:
        """The build of a file into which the nodes that are kept were written; inputs and outputs
        by name."""
        probe = self.probe
        model, told = workaround_model.write_form(self.store, self.model, self.keep, probe)
        request = BuildRequest(
            model=model,
            weights_dir=self.model.weights_dir,
            feed_shapes={name: tuple(feed.arrays[t].shape) for name, t in part.feeds.items()},
            attempt=probe.attempt,
            say=self.progress,
        )
        built = build(self.engine, request)
        return _Ready(
            replace(part, model=model), built, time.monotonic() - begun, facts={"written": told}
        )

    def _rewrite(self, feed: Feed, part: Cut, begun: float) -> _Ready:
        """The build of the rewritten model; inputs and outputs by name."""
        probe = self.probe
        if probe.rewrite in APART:
            tensors = [self.index.tensors[t].name for t in decode(probe.rewrite_at)]
            model, changed = rewrites.keep_apart(
                part.model, self.model.weights_dir, probe.rewrite, tensors
            )
        elif probe.rewrite == FIXED_SIZES:
            shapes = {name: feed.arrays[t].shape for name, t in part.feeds.items()}
            model, changed = rewrites.fix_sizes(part.model, shapes)
        else:
            at = (
                range(len(part.model.graph.node))
                if probe.rewrite_at == ALL
                else decode(probe.rewrite_at)
            )
            model, changed = rewrites.rewrite_model(
                part.model, self.model.weights_dir, probe.rewrite, at
            )
        rewritten = replace(part, model=model, node_ids=tuple(range(len(model.graph.node))))
        built = self.part.build(
            self.probe.engine, rewritten, feed.arrays, attempt=self.probe.attempt, say=self.progress
        )
        return _Ready(
            rewritten, built, time.monotonic() - begun, facts={"rewritten": list(changed)}
        )

    def _run(self, ready: _Ready, feed: Feed, run: int) -> dict[int, Array]:
        arrays = nudged_feeds(feed.arrays, run) if self.probe.nudge == "inputs" else feed.arrays
        begun = time.monotonic()
        got = ready.built.run(feeds_by_name(ready.part, arrays))
        self.run_seconds += time.monotonic() - begun
        given = arrays_by_id(ready.part, got)
        return {t: feed.righted.get(t, a) for t, a in given.items()}

    def _vary_way(self, ready: _Ready, sample: str, feed: Feed) -> variation.Varied:
        assert self.probe.vary
        rows = samples.count_score_rows(self.store, self.probe.inputs, sample)
        alone = samples.count_rows_alone(self.store, self.probe.inputs, sample)
        self.progress("running in two ways")
        # The reference's own answer is captured: the next question wants it.
        itself = self.probe.engine == self.probe.reference and self.probe.candidate == Candidate()
        found = variation.vary_way(
            self.probe.vary,
            lambda arrays: arrays_by_id(
                ready.part, ready.built.run(feeds_by_name(ready.part, arrays))
            ),
            feed.arrays,
            rows or alone,
            alone > 0,
            self.part.expected(sample, feed, self.part.judged)
            if itself and self.probe.vary == "repeated"
            else None,
        )
        if found is None:
            raise EngineFault(
                "unsupported", f"The rows of '{sample}' cannot be fed in another way."
            )
        return found

    # -- what comes out -------------------------------------------------------------------------------------------------

    def _compare_outputs(
        self, sample: str, actual: Mapping[int, Array], expected: Mapping[int, Array], feed: Feed
    ) -> list[SampleResult]:
        """One result a row where the sample is a whole feed whose rows can be told apart in all
        that is judged, else one."""
        own = {t: (actual.get(t), expected[t]) for t in self.part.judged}
        effect = (
            self._effect_on_outputs(sample, actual, expected)
            if self.probe.effect and not self.probe.candidate.edits
            else {}
        )
        judged = self._postprocess_pairs(own) if self.finished else self._by_name(own)
        moved = self._postprocess_pairs(effect) if effect else {}
        rows = (
            samples.count_score_rows(self.store, self.probe.inputs, sample)
            if "/" not in sample
            else 0
        )
        whole = [e for _, e in (*judged.values(), *moved.values())]
        split = rows if rows > 0 and all(a.ndim and a.shape[0] == rows for a in whole) else 0

        def scores(pairs: Mapping[str, _Pair], *, final: bool = False) -> list[tuple[Score, ...]]:
            """By row, the scores of all tensors. ``final``: they are the model's own outputs, which
            give answers."""
            columns = [
                _score_rows(name, a, e, split, final=final, classes=name not in self.of_places)
                for name, (a, e) in pairs.items()
            ]
            return [tuple(column[row] for column in columns) for row in range(max(1, split))]

        outputs = scores(judged, final=self.finished)
        marks = scores(self._by_name(self._pair_marks(actual, expected, feed)))
        effects = scores(moved, final=True)
        return [
            SampleResult(
                sample=f"{sample}/{row}" if split else sample,
                outputs=outputs[row],
                marks=marks[row],
                effect=effects[row],
                unrepresentable=tuple(feed.unrepresentable),
                vanished=tuple(feed.vanished),
                rounded=feed.rounded,
            )
            for row in range(max(1, split))
        ]

    def _pair_marks(
        self, actual: Mapping[int, Array], expected: Mapping[int, Array], feed: Feed
    ) -> dict[int, _Pair]:
        # What an engine cannot give out (a shape or a boolean, on some) says nothing about the node
        # that made it.
        unseen = [t for t in self.marks if t not in actual]
        if unseen:
            first = self.index.tensors[unseen[0]].name
            self.notes.append(
                f"{len(unseen)} tensors could not be observed, '{first}' first: the engine does not give them out."
            )
        seen: dict[int, _Pair] = {t: (actual[t], expected[t]) for t in self.marks if t in actual}
        fed = (t for t in self.marked_feeds if t in feed.arrays)
        return seen | {t: (feed.arrays[t], feed.exact.get(t, feed.arrays[t])) for t in fed}

    def _by_name(self, values: Mapping[int, _Value]) -> dict[str, _Value]:
        return {self.index.tensors[t].name: value for t, value in values.items()}

    def _postprocess_pairs(self, pairs: Mapping[int, _Pair]) -> dict[str, _Pair]:
        """The model's own outputs (given, expected) as the user wants them compared. Raises
        ``ScriptProblem``."""
        named_pairs = self._by_name(pairs)
        if not self.probe.postprocess:
            return named_pairs
        self.progress(POSTPROCESSING)
        probe = self.probe
        expected, actual = (
            postprocess.apply_postprocess(
                probe.postprocess,
                outputs,
                runner,
                folder=probe.folder,
                digest=probe.postprocess_digest,
            )
            for runner, outputs in (
                (probe.reference, {name: e for name, (_, e) in named_pairs.items()}),
                (probe.engine, {name: a for name, (a, _) in named_pairs.items() if a is not None}),
            )
        )
        if more := [name for name in actual if name not in expected]:
            raise ScriptProblem(
                f"The postprocess script gave the output '{more[0]}' for {probe.engine} and not for {probe.reference}; let it "
                "give the same outputs for both."
            )
        return {name: (actual.get(name), value) for name, value in expected.items()}

    def _score_outputs(
        self, sample: str, actual: Mapping[int, Array], expected: Mapping[int, Array], feed: Feed
    ) -> list[float | None]:
        """How good the user counts the engine's outputs and the reference's; empty where nobody
        asks. Raises ``ScriptProblem``."""
        if not self.probe.score or not self.finished:
            return []
        self.progress(SCORING)
        inputs = {
            self.index.tensors[t].name: a
            for t, a in feed.arrays.items()
            if self.index.tensors[t].kind == "input"
        }
        names = {t: self.index.tensors[t].name for t in self.index.outputs}
        return [
            score.apply_score(
                self.probe.score,
                {name: outputs[t] for t, name in names.items() if t in outputs},
                score.Sample(inputs, sample),
                self.probe.score_digest,
            )
            for outputs in (actual, expected)
        ]

    def _effect_on_outputs(
        self, sample: str, actual: Mapping[int, Array], right: Mapping[int, Array]
    ) -> dict[int, _Pair]:
        """The model's outputs O (with, without) the engine's values of what is judged put into the
        reference run: one run of the slice that lies downstream. Empty, with a note, where it
        cannot be measured. ``right``: the reference's values of what is judged; no run is made
        where the engine gave these to the bit, as most parts that pass do."""
        own = {t: actual[t] for t in self.part.judged if t in actual}
        beyond = [t for t in self.final if t not in own]
        expected = self.part.values(self.final, sample)
        if own.keys() == set(self.part.judged) and all(
            t in right and _same_bits(a, right[t]) for t, a in own.items()
        ):
            return {t: (expected[t], expected[t]) for t in self.final}
        moved = {t: own[t] for t in self.final if t in own}
        nodes = sorted(
            set(self.index.descendants(own)).intersection(self.index.ancestors(beyond, stop=own))
        )
        if nodes:
            self.progress("transplanting")
            try:
                moved |= self._run_downstream(sample, own, nodes, beyond)
            except (EngineFault, ModelProblem) as error:
                self.notes.append(
                    f"The effect on the model's outputs could not be measured: {error}"
                )
                return {}
        return {t: (moved.get(t, expected[t]), expected[t]) for t in self.final}

    def _run_downstream(
        self, sample: str, own: Mapping[int, Array], nodes: Sequence[int], beyond: Sequence[int]
    ) -> dict[int, Array]:
        """What the reference makes of the outputs ``beyond`` when it is given ``own`` and runs
        ``nodes``."""
        probe = self.probe
        made = {t for n in nodes for t in self.index.nodes[n].outputs}
        candidate = Candidate(
            nodes=encode(nodes),
            outputs=encode(t for t in beyond if t in made),
            severed=encode(made.intersection(own)),
        )
        part = Part(self.store, self.model, candidate, probe.inputs, probe.reference, self.progress)
        given = {t: own[t] for t in part.needed if t in own}
        rest = part.values([t for t in part.needed if t not in own], sample)
        return self._run_part(probe.reference, part, rest, given)

    def _keep_refused(
        self, fault: EngineFault, feed: Feed, expected: Mapping[int, Array]
    ) -> Measurement:
        """The answer of an engine that did not build, with what it was given kept."""
        part = self.part.cut(feed.arrays, feed.constants, self.marks, opened=True)
        for name, model in (
            ("model.onnx", artifact_files.for_viewers(part.model)),
            ("engine.onnx", fault.model or part.model),
        ):
            self.artifacts |= self._put_model(name, model)
        self._put_arrays(part, feed, {"expected.npz": expected})
        return Measurement(
            status=fault.status,  # type: ignore[arg-type]
            message=str(fault),
            facts={"refusal": list(self.words_of(fault))},
            artifacts=self.artifacts,
            notes=tuple(dict.fromkeys(self.notes)),
            nodes=sum(n >= 0 for n in part.node_ids),
        )

    def _save_case(
        self, ready: _Ready, feed: Feed, expected: Mapping[int, Array], actual: Mapping[int, Array]
    ) -> None:
        """Keep what was built and what went in and out, for the case bundle, where that is asked
        for: of the first sample."""
        if not self.probe.save or self.artifacts:
            return
        self.progress("saving")
        if self.probe.written:
            self.artifacts |= self._put_model(WRITTEN, ready.part.model)
            return
        shapes = {
            output: expected[t].shape for output, t in ready.part.outputs.items() if t in expected
        }
        # What the engine ran stays as it was; the model is also looked at.
        models = {
            "model.onnx": artifact_files.for_viewers(ready.part.model),
            "engine.onnx": ready.built.model,
        }
        # Where layers are kept by a setting of the build, the model that was built does not hold
        # the workaround.
        if self.probe.save == "good" or (
            self.probe.save == "workaround"
            and self.keep
            and artifact_files.typed_alike(ready.part.model, ready.built.model)
        ):
            del models["engine.onnx"]
        for name, model in models.items():
            shaped = artifact_files.with_shapes(model, shapes)
            self.artifacts |= self._put_model(name, shaped)
        if self.probe.save == "good":
            # The neighbour that passes is looked at and never run: its values were a seventh of
            # what a session of magika holds.
            return
        given = {"expected.npz": expected, "actual.npz": actual}
        judged = self._put_arrays(ready.part, feed, given)
        self.artifacts["values.json"] = self.store.put(
            msgspec.json.encode(summarize_values(*judged))
        )
        for name, data in getattr(ready.built, "save", dict)().items():
            self.artifacts[name] = self.store.put(data)
        if (choices := ready.built.facts.get("choices")) is not None:
            # Choices that are no algorithms have no replay.
            with contextlib.suppress(ValueError):
                self.artifacts["replay.json"] = self.store.put(tactic_replay.encode_replay(choices))

    def _put_arrays(
        self, part: Cut, feed: Feed, given: Mapping[str, Mapping[int, Array]]
    ) -> list[dict[str, Array]]:
        """Keep what a part is fed, and what it gave, by artifact; the latter by output."""
        judged = [
            {output: arrays[t] for output, t in part.outputs.items() if t in arrays}
            for arrays in given.values()
        ]
        kept = [feeds_by_name(part, feed.arrays), *judged]
        for name, arrays in zip(("inputs.npz", *given), kept, strict=True):
            self.artifacts[name] = artifact_files.put_arrays(self.store, arrays)
        return judged

    def _put_model(self, name: str, model: ModelProto) -> dict[str, str]:
        """Keep a model that was made of the probe's own ones, whose weights the session has."""
        own = [
            self.model.proto,
            *([load.load(self.store, self.probe.written).proto] if self.probe.written else []),
        ]
        held = frozenset().union(*map(external.locations, own))
        return artifact_files.put_model(self.store, name, model, self.model.weights_dir, held)


def _score_rows(
    name: str, actual: Array | None, expected: Array, rows: int, *, final: bool, classes: bool
) -> list[Score]:
    """``rows`` scores, or one. What has no rows of its own (a mark) is scored whole for each.
    ``final``: with answers, of class scores too where it may hold such (``classes``)."""
    if rows and expected.ndim and expected.shape[0] == rows:
        found = metrics.score_rows(name, actual, expected, rows)
        if not final or actual is None or actual.shape != expected.shape:
            return found
        return [
            _with_answer(s, actual[i : i + 1], expected[i : i + 1], classes)
            for i, s in enumerate(found)
        ]
    whole = metrics.score(name, actual, expected)
    return [_with_answer(whole, actual, expected, classes) if final else whole] * max(1, rows)


def _with_answer(score: Score, actual: Array | None, expected: Array, classes: bool) -> Score:
    return msgspec.structs.replace(score, answer=answer(actual, expected, classes=classes))


def _build_key(
    question: tuple[Any, ...], arrays: Mapping[int, Array], constants: Mapping[int, Array]
) -> bytes:
    """What one build answers: the question, the types of what is fed, the values of what is baked
    in."""
    digest = hashlib.sha256(msgspec.json.encode(question))
    for t, a in sorted(arrays.items()):
        digest.update(f"{t}:{a.dtype}{a.shape};".encode())
    for t, a in sorted(constants.items()):
        digest.update(f"={t}:{a.dtype}{a.shape};".encode())
        digest.update(
            repr(a.tolist()).encode() if a.dtype.kind == "O" else np.ascontiguousarray(a).tobytes()
        )
    return digest.digest()


def _is_wider(dtype: np.dtype[Any], storage: np.dtype[Any]) -> bool:
    floating = dtype.kind == "f" or dtype.name.startswith(("bfloat", "float"))
    return floating and dtype.itemsize > storage.itemsize


def _round(value: Array, storage: np.dtype[Any]) -> tuple[Array, float, bool, bool]:
    """(the values as ``storage`` holds them, the relative L2 distance over the elements that stayed
    finite, whether a finite value became infinite, whether one that is not 0 became 0)."""
    square = difference = 0.0
    overflows = vanishes = False
    stored = np.empty(value.shape, value.dtype)
    flat, other = np.ravel(value), stored.reshape(-1)
    for start in range(0, flat.size, CHUNK):
        here = slice(start, start + CHUNK)
        with np.errstate(all="ignore"):
            other[here] = flat[here].astype(storage)
        a, b = flat[here].astype(np.float64), other[here].astype(np.float64)
        if not (np.isfinite(a).all() and np.isfinite(b).all()):
            finite = np.isfinite(a)
            both = finite & np.isfinite(b)
            overflows = overflows or bool((finite & ~both).any())
            a, b = a[both], b[both]
        vanishes = vanishes or bool(np.any((b == 0) & (a != 0)))
        with np.errstate(all="ignore"):
            np.subtract(a, b, out=b)
            square += float(np.dot(a, a))
            difference += float(np.dot(b, b))
    if difference == 0.0:
        return stored, 0.0, overflows, vanishes
    distance = min(HUGE, (difference / square) ** 0.5) if square > 0 else HUGE
    return stored, distance, overflows, vanishes


def _same_step(one: Mapping[str, _Pair], other: Mapping[str, _Pair]) -> bool:
    """Whether the engine gave the same in both, and gave it all."""
    given = [(one[name][0], other[name][0]) for name in one]
    return all(a is not None and b is not None and _same_bits(a, b) for a, b in given)


def _same_bits(a: Array, b: Array) -> bool:
    """Bitwise, NaN payloads included."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype.kind in "OSUT":
        return bool(np.array_equal(a, b))
    return np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes()
