"""A candidate as a worker sees it: what it is fed, what is baked in, what the reference says that
it should give."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from narrowdown.engines.array import Array
from narrowdown.engines.backends.base import BuildRequest, Built, EngineFault
from narrowdown.engines.backends.builds import Kept, build, close_built
from narrowdown.engines.data import InputProblem, originals, samples
from narrowdown.engines.data.samples import Span
from narrowdown.engines.graph import ModelProblem
from narrowdown.engines.graph.cut import Cut, cut, feeds_of, kept_rows, node_ids, outputs_of
from narrowdown.engines.graph.load import StoredModel, np_dtype
from narrowdown.engines.graph.quantized import is_quantized
from narrowdown.engines.graph.ranges import ALL, decode
from narrowdown.engines.probe import STEP, Candidate, Edit
from narrowdown.engines.store import Store
from narrowdown.engines.workers import captures
from narrowdown.engines.workers.captures import ReferenceFailed

Say = Callable[[str], None]


@dataclass
class Feed:
    """What a candidate is fed for one sample, by tensor id. ``constants`` are baked in and not fed;
    ``exact`` holds the values of rounded tensors as they were; ``rounded``, ``unrepresentable`` and
    ``vanished`` are those of a ``SampleResult``. ``righted``: what the reference made in this run
    of righted nodes."""

    arrays: dict[int, Array] = field(default_factory=dict)
    constants: dict[int, Array] = field(default_factory=dict)
    exact: dict[int, Array] = field(default_factory=dict)
    rounded: dict[str, float] = field(default_factory=dict)
    unrepresentable: list[str] = field(default_factory=list)
    vanished: list[str] = field(default_factory=list)
    righted: dict[int, Array] = field(default_factory=dict)


def _weigh_steps(steps: Sequence[Mapping[str, Array]]) -> int:
    """Bytes of memory; what is mapped takes none. A row, or a step, keeps the whole array that it
    is a part of."""
    held = (a for step in steps for a in step.values() if not isinstance(a, np.memmap))
    whole = (a if a.base is None else a.base for a in held)
    return sum({id(a): a.nbytes for a in whole}.values())


_samples: Kept[list[dict[str, Array]]] = Kept(weigh=_weigh_steps, most=64)


def _load_sample(root: Path, inputs: str, sample: str, reference: str) -> Mapping[str, Array]:
    """The sample's arrays, of a step also what the reference gave; what a digest names never
    changes. A search goes round the few rows that fail most, a loop through all of its steps."""
    feed = sample.partition(f"/{STEP}")[0]
    key = f"{root}\0{inputs}\0{feed}\0{reference}".encode(errors="surrogateescape")
    steps = _samples.get(key, lambda: samples.load_steps(Store(root), inputs, feed, reference))
    return samples.pick_step(steps, sample)


class Part:
    """A candidate of a stored model, with the inputs and the reference that its values come
    from."""

    def __init__(
        self,
        store: Store,
        model: StoredModel,
        candidate: Candidate,
        inputs: str,
        reference: str,
        progress: Say,
    ) -> None:
        self.store, self.model, self.index, self.candidate = store, model, model.index, candidate
        self.inputs, self.reference, self.progress = inputs, reference, progress
        self.nodes = node_ids(self.index, candidate)
        self.needed = feeds_of(self.index, candidate)
        self.judged = outputs_of(self.index, candidate)
        if not self.judged:
            raise ModelProblem(f"The candidate of {len(self.nodes)} nodes has no output to judge.")

    def values(self, tensors: Sequence[int], sample: str) -> dict[int, Array]:
        """The sample's own inputs and captured reference values, by tensor id. Raises
        ``InputProblem``, ``ReferenceFailed``."""
        kinds = self.index.tensors
        own = _load_sample(self.store.root, self.inputs, sample, self.reference)
        found: dict[int, Array] = {}
        for t in tensors:
            if kinds[t].name in own:
                found[t] = own[kinds[t].name]
            elif kinds[t].kind == "input":
                raise InputProblem(f"The sample '{sample}' holds no input '{kinds[t].name}'.")
        rest = [t for t in tensors if t not in found]
        if rest:
            found |= captures.capture_values(
                self.store,
                self.model,
                rest,
                captures.Run(self.reference, self.inputs, sample),
                self.progress,
            )
        return found

    def feed(self, sample: str) -> Feed:
        """Exact values of all that the candidate needs, edits applied, constants set apart."""
        arrays = self.values(self.needed, sample)
        for edit in self.candidate.edits:
            _apply_edit(arrays, edit)
        constants = self.constants(arrays)
        feed = Feed(
            arrays={t: a for t, a in arrays.items() if t not in constants},
            constants={t: a for t, a in arrays.items() if t in constants},
        )
        self._narrow_halves(feed)
        return feed

    def _narrow_halves(self, feed: Feed) -> None:
        """Where the reference is the model before it was converted, what the model holds in a half
        is fed as one."""
        for t, value in feed.arrays.items():
            declared = self.index.tensors[t]
            if declared.dtype not in ("float16", "bfloat16") or value.dtype.name == declared.dtype:
                continue
            with np.errstate(all="ignore"):
                feed.exact[t], feed.arrays[t] = value, value.astype(np_dtype(declared.dtype))
                if bool(
                    np.any(np.isfinite(value) & ~np.isfinite(feed.arrays[t].astype(value.dtype)))
                ):
                    feed.unrepresentable.append(declared.name)

    def constants(self, arrays: Mapping[int, Array]) -> set[int]:
        """Which of the fed tensors are baked in: those that the candidate names, else the integers
        and booleans that decide a shape, an axis, an index or a condition, the model's own inputs
        left out."""
        if self.candidate.constants is not None:
            named = self.candidate.constants
            return set(arrays) if named == ALL else set(decode(named)).intersection(arrays)
        deciding = set(self.index.shape_like)
        tensors = self.index.tensors
        return {
            t
            for t, a in arrays.items()
            if t in deciding and tensors[t].kind != "input" and a.dtype.kind in "iub"
        }

    def expected(self, sample: str, feed: Feed, tensors: Sequence[int]) -> dict[int, Array]:
        """Reference values of these tensors: captured from the whole model; an edited candidate is
        its own, fed exactly."""
        if not self.candidate.edits:
            return self.values(tensors, sample)
        exact = {**feed.arrays, **feed.exact}
        marks = tuple(t for t in tensors if t not in self.judged)
        try:
            part = self.cut(exact, feed.constants, marks)
            built = self.build(self.reference, part, exact)
            try:
                return arrays_by_id(part, built.run(feeds_by_name(part, exact)))
            finally:
                close_built(built)
        except EngineFault as error:
            raise ReferenceFailed(
                f"The reference cannot run the edited candidate: {error}"
            ) from error

    def cut(
        self,
        arrays: Mapping[int, Array],
        constants: Mapping[int, Array],
        marks: Sequence[int] = (),
        *,
        opened: bool = False,
    ) -> Cut:
        """The candidate as a model, typed by the values that it will be fed. ``opened``: dimensions
        that the model leaves open stay so where it is cut, as an engine may be wrong with, or
        refuse, just what it cannot know before. Raises ``ModelProblem``."""
        types = {t: (a.dtype, tuple(a.shape)) for t, a in (*arrays.items(), *constants.items())}
        if opened:
            # Where not even the rank follows from the model, the seen shape: with the values come
            # what an engine lacked.
            known = {t: self.index.tensors[t].shape for t in arrays}
            types |= {t: (a.dtype, _leave_open(known[t], a.shape)) for t, a in arrays.items()}
        return cut(self.model, self.candidate, constants, types, self.judged, marks)

    def build(
        self,
        spec: str,
        part: Cut,
        arrays: Mapping[int, Array],
        keep: frozenset[int] = frozenset(),
        span: Span | None = None,
        **how: Any,
    ) -> Built:
        """Build a cut on the engine of a spec. ``keep``: node ids of the whole model to keep in
        higher precision; quantized ones lose their Q/DQ pairs (``originals.keeps_pairs`` says when
        not). ``span``: the shapes that it is to serve; none: as fed. ``how``: further fields of the
        request. Raises ``EngineFault``, ``ModelProblem``."""
        engine = captures.make_engine(spec)
        piece = self.candidate.nodes != ALL or bool(self.candidate.edits or keep)
        part = originals.restore_floats(self.store, self.model, part, spec)
        if keep and is_quantized(self.index):
            if not originals.keeps_pairs(spec, self.reference):
                part = originals.leave_layers_float(
                    self.store, self.model, part, keep, self.reference
                )
            if not engine.info.capabilities["keep"].present:
                keep = frozenset()
        shapes = {name: tuple(arrays[t].shape) for name, t in part.feeds.items()}
        least, most = (span.least, span.most) if span else ({}, {})
        request = BuildRequest(
            model=part.model,
            weights_dir=self.model.weights_dir,
            keep=frozenset(i for i, n in enumerate(part.node_ids) if n in keep),
            marks=tuple(part.marks),
            feed_shapes={name: most.get(name, shape) for name, shape in shapes.items()},
            least_shapes={name: least[name] for name in shapes if name in least},
            part=piece,
            **how,
        )
        return captures.take_halves(build(engine, request), part, spec)


def run_reference(store: Store, model: StoredModel, reference: str, progress: Say) -> samples.Run:
    """Runs of the whole model on the reference, inputs and outputs by name."""
    part, names = Part(store, model, Candidate(), "", reference, progress), model.index.tensors
    builds: Kept[tuple[Cut, Built]] = Kept(lambda kept: close_built(kept[1]))

    def run(fed: Mapping[str, Array]) -> dict[str, Array]:
        progress("reference run, step by step")
        arrays = {model.index.by_name[name]: value for name, value in fed.items()}

        def make() -> tuple[Cut, Built]:
            piece = part.cut(arrays, {}, opened=True)
            return piece, part.build(reference, piece, arrays)

        fault = ""
        # Many engines run any size where the model leaves it open; others are built for each.
        for sizes in ("", repr([a.shape for a in fed.values()])):
            try:
                piece, built = builds.get(sizes.encode(), make)
                got = arrays_by_id(piece, built.run(feeds_by_name(piece, arrays)))
                return {names[t].name: value for t, value in got.items()}
            except EngineFault as error:
                fault = str(error)
        raise ReferenceFailed(
            f"The reference {reference} could not run a step of the loop: {fault}"
        )

    return run


def _leave_open(known: Sequence[int] | None, seen: tuple[int, ...]) -> tuple[int, ...]:
    """The seen shape, -1 where the model knows no size."""
    if known is None or len(known) != len(seen):
        return seen
    return tuple(-1 if k < 0 else n for k, n in zip(known, seen, strict=True))


def feeds_by_name(part: Cut, arrays: Mapping[int, Array]) -> dict[str, Array]:
    """What to feed, by the cut's input names."""
    return {name: arrays[t] for name, t in part.feeds.items()}


def arrays_by_id(part: Cut, got: Mapping[str, Array]) -> dict[int, Array]:
    """What an engine gave, by tensor id."""
    return {
        t: np.asarray(got[name])
        for name, t in {**part.outputs, **part.marks}.items()
        if name in got
    }


def _apply_edit(arrays: dict[int, Array], edit: Edit) -> None:
    """Apply an edit of what is fed; edits of nodes and weights are the cut's."""
    value = arrays.get(edit.tensor)
    if value is None:
        return
    if edit.kind == "fill":
        arrays[edit.tensor] = np.full(value.shape, edit.value).astype(value.dtype)
    elif edit.kind == "keep-rows":
        arrays[edit.tensor] = kept_rows(value, edit)
