"""Measure: build a candidate, run it, compare it with the captured reference, transplant what it gave into the reference run."""

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from engines.backends.base import BuildRequest, Built, Engine, EngineFault
from engines.backends.builds import Kept, shut
from engines.compare import metrics
from engines.data import captures, samples
from engines.data.captures import ReferenceFailed
from engines.data.store import Store
from engines.graph import load
from engines.graph.cut import Cut, cut, feeds_of, node_ids, outputs_of
from engines.graph.index import GraphIndex
from engines.graph.load import StoredModel
from engines.graph.problem import ModelProblem
from engines.graph.ranges import ALL, decode, encode
from engines.probe import HUGE, Candidate, Edit, Measure, Measurement, SampleResult, Score
from engines.workers import files

_KEPT_BUILDS = 4
_CHUNK = 1 << 20  # elements at a time where float64 copies are made

Array = np.ndarray[Any, Any]
Say = Callable[[str], None]


@dataclass
class _Ready:
    """A built candidate. ``seconds`` is what its build took, however often it is used."""

    part: Cut
    built: Built
    seconds: float


@dataclass
class _Feed:
    """What a candidate is fed for one sample, by tensor id. ``constants`` are baked in and not fed; ``exact`` holds the values of
    rounded tensors before rounding."""

    arrays: dict[int, Array] = field(default_factory=dict)
    constants: dict[int, Array] = field(default_factory=dict)
    exact: dict[int, Array] = field(default_factory=dict)
    rounded: dict[str, float] = field(default_factory=dict)
    unrepresentable: list[str] = field(default_factory=list)


_builds: Kept[_Ready] = Kept(_KEPT_BUILDS, lambda ready: shut(ready.built))
_slices: Kept[_Ready] = Kept(_KEPT_BUILDS, lambda ready: shut(ready.built))


def forget() -> None:
    """Close what is kept warm."""
    _builds.clear()
    _slices.clear()


def measure(probe: Measure, store: Store, progress: Say) -> Measurement:
    """Answer the probe. Raises ``EngineFault``, ``EngineMissing``, ``ReferenceFailed``, ``ModelProblem``, ``InputProblem``."""
    return _Measuring(probe, store, progress).answer()


class _Measuring:
    """One Measure probe on its way."""

    def __init__(self, probe: Measure, store: Store, progress: Say) -> None:
        self.probe, self.store, self.progress = probe, store, progress
        self.model: StoredModel = load.load(store, probe.model)
        self.index: GraphIndex = self.model.index
        self.engine: Engine = captures.engine(probe.engine)
        self.candidate: Candidate = probe.candidate
        self.judged = outputs_of(self.index, probe.candidate)
        self.needed = feeds_of(self.index, probe.candidate)
        self.keep = frozenset(range(len(self.index.nodes)) if probe.keep == ALL else decode(probe.keep))
        self.marks = self._marks()
        self.final = decode(probe.effect_on) if probe.effect_on not in ("", ALL) else self.index.outputs
        self.build_seconds = self.run_seconds = 0.0
        self.notes: list[str] = []
        self.artifacts: dict[str, str] = {}
        if not self.judged:
            raise ModelProblem(
                f"The candidate of {len(node_ids(self.index, probe.candidate))} nodes has no output to judge."
            )

    def answer(self) -> Measurement:
        count = max(1, self.probe.runs)
        results: list[list[SampleResult]] = [[] for _ in range(count)]
        differs = [False] * count
        nodes = 0
        compared: list[SampleResult] = []
        for sample in self.probe.samples:
            feed = self._feed(sample)
            ready = self._build(feed)
            nodes = sum(n >= 0 for n in ready.part.node_ids)
            expected = self._expected(sample, feed)
            first: dict[int, Array] = {}
            for run in range(count):
                self.progress("running" if count == 1 else f"running {run + 1} of {count}")
                actual = self._run(ready, feed)
                if run == 0:
                    first = actual
                    compared = self._compare(sample, actual, expected, feed)
                elif any(not _same(first[t], a) for t, a in actual.items() if t in first):
                    differs[run] = True
                    results[run].extend(self._compare(sample, actual, expected, feed))
                    continue
                results[run].extend(compared)
            if self.probe.save and not self.artifacts:
                self._save(ready, feed, expected, first)
        return Measurement(
            results=tuple(results[0]),
            # Hundreds of runs are mostly one and the same: those that differ from the first are kept.
            runs=tuple(tuple(r) for r, other in zip(results, differs, strict=True) if other),
            varies=any(differs),
            facts={"runs": count} if count > 1 else {},
            artifacts=self.artifacts,
            notes=tuple(dict.fromkeys(self.notes)),
            build_seconds=self.build_seconds,
            run_seconds=self.run_seconds,
            nodes=nodes,
        )

    # -- what goes in ---------------------------------------------------------------------------------------------------

    def _marks(self) -> tuple[int, ...]:
        if not self.probe.marks:
            return ()
        made = {t for n in node_ids(self.index, self.candidate) for t in self.index.nodes[n].outputs}
        wanted = made if self.probe.marks == ALL else made.intersection(decode(self.probe.marks))
        skipped = [t for t in wanted if self.index.tensors[t].dtype in ("sequence", "optional")]
        if skipped:
            self.notes.append(f"{len(skipped)} tensors hold sequences and cannot be observed.")
        return tuple(sorted(wanted.difference(self.judged, skipped)))

    def _feed(self, sample: str) -> _Feed:
        """What the candidate is fed: the model's own inputs as they are, cut and severed ones by the feed rule, edits applied."""
        own, feed = samples.feed(self.store, self.probe.inputs, sample), _Feed()
        tensors = self.index.tensors
        inner = [t for t in self.needed if tensors[t].kind != "input"]
        values = self._reference(inner, sample) if inner else {}
        for t in self.needed:
            if tensors[t].kind != "input":
                feed.arrays[t] = values[t]
            elif tensors[t].name in own:
                feed.arrays[t] = own[tensors[t].name]
            else:
                raise ModelProblem(f"The sample {sample} has no value for the input '{tensors[t].name}'.")
        constants = self._constants(feed.arrays)
        for edit in self.candidate.edits:
            _edit(feed, edit)
        feed.constants = {t: feed.arrays.pop(t) for t in constants}
        if self.probe.feed == "stored":
            self._store(feed)
        return feed

    def _constants(self, arrays: Mapping[int, Array]) -> list[int]:
        """Which of the fed tensors are baked in: those that the candidate names, else the integers and booleans that decide a
        shape, an axis, an index or a condition, the model's own inputs left out."""
        if self.candidate.constants is not None:
            named = decode(self.candidate.constants) if self.candidate.constants != ALL else tuple(arrays)
            return [t for t in named if t in arrays]
        deciding = set(self.index.shape_like)
        tensors = self.index.tensors
        return [t for t, a in arrays.items() if t in deciding and tensors[t].kind != "input" and a.dtype.kind in "iub"]

    def _store(self, feed: _Feed) -> None:
        """Round cut tensors as the engine would have stored them. A kept node's result is stored in FP32."""
        storage = load.np_dtype(self.engine.info.storage)
        for t, value in feed.arrays.items():
            info = self.index.tensors[t]
            if info.kind == "input" or info.producer in self.keep or not _wider(value.dtype, storage):
                continue
            with np.errstate(all="ignore"):
                stored = np.asarray(value).astype(storage).astype(value.dtype)
            distance, overflows = _rounding(value, stored)
            if distance > 0 or overflows:
                feed.exact[t], feed.arrays[t] = value, stored
                feed.rounded[info.name] = distance
            if overflows:
                feed.unrepresentable.append(info.name)

    def _reference(self, tensors: Sequence[int], sample: str) -> dict[int, Array]:
        probe = self.probe
        return captures.values(self.store, self.model, tensors, sample, probe.inputs, probe.reference, self.progress)

    def _expected(self, sample: str, feed: _Feed) -> dict[int, Array]:
        """Reference values of what is judged and observed: captured from the whole model; an edited cut is its own reference."""
        wanted = (*self.judged, *self.marks)
        if not self.candidate.edits:
            return self._reference(wanted, sample)
        exact = {**feed.arrays, **feed.exact}
        try:
            engine = captures.engine(self.probe.reference)
            part, built = self._made(engine, self.candidate, exact, feed.constants, self.judged, self.marks)
            try:
                return _by_id(part, built.run({name: exact[t] for name, t in part.feeds.items()}))
            finally:
                shut(built)
        except EngineFault as error:
            raise ReferenceFailed(f"The reference cannot run the edited candidate: {error}") from error

    # -- build and run --------------------------------------------------------------------------------------------------

    def _build(self, feed: _Feed) -> _Ready:
        probe = self.probe
        question = (
            "measure", self.engine.info.fingerprint, self.engine.info.spec, probe.model, probe.candidate, self.judged, self.marks,
            probe.keep, probe.attempt,
        )  # fmt: skip

        def make() -> _Ready:
            self.progress("building")
            begun = time.monotonic()
            part, built = self._made(self.engine, probe.candidate, feed.arrays, feed.constants, self.judged, self.marks)
            return _Ready(part, built, time.monotonic() - begun)

        ready = _builds.get(_key(question, feed.arrays, feed.constants), make)
        self.build_seconds = max(self.build_seconds, ready.seconds)
        return ready

    def _made(
        self, engine: Engine, candidate: Candidate, arrays: Mapping[int, Array], constants: Mapping[int, Array],
        outputs: Sequence[int], marks: Sequence[int],
    ) -> tuple[Cut, Built]:  # fmt: skip
        """Cut and build, nothing kept."""
        types = {t: (a.dtype, tuple(a.shape)) for t, a in (*arrays.items(), *constants.items())}
        part = cut(self.model, candidate, constants, types, outputs, marks)
        request = BuildRequest(
            model=part.model,
            weights_dir=self.model.weights_dir,
            keep=frozenset(i for i, n in enumerate(part.node_ids) if n in self.keep),
            marks=tuple(part.marks),
            feed_shapes={name: tuple(arrays[t].shape) for name, t in part.feeds.items()},
            attempt=self.probe.attempt,
        )
        return part, engine.build(request)

    def _run(self, ready: _Ready, feed: _Feed) -> dict[int, Array]:
        begun = time.monotonic()
        got = ready.built.run({name: feed.arrays[t] for name, t in ready.part.feeds.items()})
        self.run_seconds += time.monotonic() - begun
        return _by_id(ready.part, got)

    # -- what comes out -------------------------------------------------------------------------------------------------

    def _compare(
        self, sample: str, actual: Mapping[int, Array], expected: Mapping[int, Array], feed: _Feed
    ) -> list[SampleResult]:
        """One result a row where the sample is a whole feed whose rows can be told apart in all that is judged, else one."""
        effect = self._effect(sample, actual) if self.probe.effect and not self.candidate.edits else {}
        rows = samples.rows(self.store, self.probe.inputs, sample) if "/" not in sample else 0
        judged = [expected[t] for t in self.judged] + [e for _, e in effect.values()]
        split = rows if rows > 0 and all(a.ndim and a.shape[0] == rows for a in judged) else 0

        def scores(pairs: Mapping[int, tuple[Array | None, Array]]) -> list[tuple[Score, ...]]:
            """By row, the scores of all tensors."""
            columns = [self._scores(t, a, e, split) for t, (a, e) in pairs.items()]
            return [tuple(column[row] for column in columns) for row in range(max(1, split))]

        outputs = scores({t: (actual.get(t), expected[t]) for t in self.judged})
        marks = scores({t: (actual.get(t), expected[t]) for t in self.marks})
        effects = scores(effect)
        return [
            SampleResult(
                sample=f"{sample}/{row}" if split else sample,
                outputs=outputs[row],
                marks=marks[row],
                effect=effects[row],
                unrepresentable=tuple(feed.unrepresentable),
                rounded=feed.rounded,
            )
            for row in range(max(1, split))
        ]

    def _scores(self, tensor: int, actual: Array | None, expected: Array, rows: int) -> list[Score]:
        """``rows`` scores, or one. What has no rows of its own (a mark) is scored whole for each."""
        name, count = self.index.tensors[tensor].name, max(1, rows)
        if actual is None:
            return [Score(name, str(expected.dtype), tuple(expected.shape), problem="missing")] * count
        if rows and actual.shape == expected.shape and expected.ndim and expected.shape[0] == rows:
            return metrics.score_rows(name, actual, expected, rows)
        return [metrics.score(name, actual, expected)] * count

    def _effect(self, sample: str, actual: Mapping[int, Array]) -> dict[int, tuple[Array, Array]]:
        """The model's outputs O (with, without) the engine's values of what is judged put into the reference run: one run
        of the slice that lies downstream. Empty, with a note, where it cannot be measured."""
        own = {t: actual[t] for t in self.judged if t in actual}
        beyond = [t for t in self.final if t not in own]
        expected = self._reference(self.final, sample)
        moved = {t: own[t] for t in self.final if t in own}
        reached = set(self.index.descendants(own))
        nodes = sorted(reached.intersection(self.index.ancestors(beyond, stop=own)))
        if nodes:
            self.progress("transplanting")
            try:
                moved |= self._downstream(sample, own, nodes, beyond)
            except (EngineFault, ModelProblem) as error:
                self.notes.append(f"The effect on the model's outputs could not be measured: {error}")
                return {}
        return {t: (moved.get(t, expected[t]), expected[t]) for t in self.final}

    def _downstream(
        self, sample: str, own: Mapping[int, Array], nodes: Sequence[int], beyond: Sequence[int]
    ) -> dict[int, Array]:
        made = {t for n in nodes for t in self.index.nodes[n].outputs}
        outputs = tuple(t for t in beyond if t in made)
        piece = Candidate(
            nodes=encode(nodes), outputs=encode(outputs), severed=encode(made.intersection(own)), constants=""
        )
        fed = feeds_of(self.index, piece)
        feed = samples.feed(self.store, self.probe.inputs, sample)
        arrays = {t: own[t] for t in fed if t in own}
        arrays |= {t: feed[n] for t in fed if t not in own and (n := self.index.tensors[t].name) in feed}
        arrays |= self._reference([t for t in fed if t not in arrays], sample)
        # Constants are chosen as for a cut, but an engine's value is never baked in: the slice is built once for all of them.
        deciding = set(self._constants({t: a for t, a in arrays.items() if t not in own}))
        constants = {t: arrays.pop(t) for t in sorted(deciding)}
        engine = captures.engine(self.probe.reference)
        question = ("effect", engine.info.fingerprint, engine.info.spec, self.probe.model, piece, outputs)

        def make() -> _Ready:
            part, built = self._made(engine, piece, arrays, constants, outputs, ())
            return _Ready(part, built, 0.0)

        ready = _slices.get(_key(question, arrays, constants), make)
        return _by_id(ready.part, ready.built.run({name: arrays[t] for name, t in ready.part.feeds.items()}))

    def _save(self, ready: _Ready, feed: _Feed, expected: Mapping[int, Array], actual: Mapping[int, Array]) -> None:
        names = self.index.tensors
        self.progress("saving")
        self.artifacts |= files.put_model(self.store, "model.onnx", ready.part.model, self.model.weights_dir)
        self.artifacts |= files.put_model(self.store, "engine.onnx", ready.built.model, self.model.weights_dir)
        fed = {name: feed.arrays[t] for name, t in ready.part.feeds.items()}
        self.artifacts["inputs.npz"] = files.put_arrays(self.store, fed)
        for name, arrays in (("expected.npz", expected), ("actual.npz", actual)):
            judged = {names[t].name: arrays[t] for t in self.judged if t in arrays}
            self.artifacts[name] = files.put_arrays(self.store, judged)


def _by_id(part: Cut, got: Mapping[str, Array]) -> dict[int, Array]:
    return {t: np.asarray(got[name]) for name, t in {**part.outputs, **part.marks}.items() if name in got}


def _key(question: tuple[Any, ...], arrays: Mapping[int, Array], constants: Mapping[int, Array]) -> bytes:
    """What one build answers: the question, the types of what is fed, the values of what is baked in."""
    digest = hashlib.sha256(msgspec.json.encode(question))
    for t, a in sorted(arrays.items()):
        digest.update(f"{t}:{a.dtype}{a.shape};".encode())
    for t, a in sorted(constants.items()):
        digest.update(f"={t}:{a.dtype}{a.shape};".encode())
        digest.update(np.ascontiguousarray(a).tobytes() if a.dtype.kind != "O" else repr(a.tolist()).encode())
    return digest.digest()


def _edit(feed: _Feed, edit: Edit) -> None:
    """Apply an edit of what is fed; edits of nodes and weights are the cut's."""
    value = feed.arrays.get(edit.tensor)
    if value is None:
        return
    if edit.kind == "fill":
        feed.arrays[edit.tensor] = np.full(value.shape, edit.value).astype(value.dtype)
    elif edit.kind == "keep-rows" and value.ndim > edit.axis:
        kept = [slice(None)] * value.ndim
        kept[edit.axis] = slice(0, int(edit.value))
        feed.arrays[edit.tensor] = np.ascontiguousarray(value[tuple(kept)])


def _floating(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "f" or dtype.name.startswith(("bfloat", "float"))


def _wider(dtype: np.dtype[Any], storage: np.dtype[Any]) -> bool:
    return _floating(dtype) and dtype.itemsize > storage.itemsize


def _rounding(value: Array, stored: Array) -> tuple[float, bool]:
    """(relative L2 distance over the elements that stayed finite, whether a finite value became infinite)."""
    square = difference = 0.0
    overflows = False
    flat, other = value.reshape(-1), stored.reshape(-1)
    for start in range(0, flat.size, _CHUNK):
        a = flat[start : start + _CHUNK].astype(np.float64)
        b = other[start : start + _CHUNK].astype(np.float64)
        lost = np.isfinite(a) & ~np.isfinite(b)
        overflows = overflows or bool(lost.any())
        both = np.isfinite(a) & np.isfinite(b)
        with np.errstate(all="ignore"):
            square += float(np.sum(np.square(a[both])))
            difference += float(np.sum(np.square(a[both] - b[both])))
    if difference == 0.0:
        return 0.0, overflows
    return (min(HUGE, (difference / square) ** 0.5) if square > 0 else HUGE), overflows


def _same(a: Array, b: Array) -> bool:
    """Bitwise, NaN payloads included."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype.kind in "OSUT":
        return bool(np.array_equal(a, b))
    return np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes()
