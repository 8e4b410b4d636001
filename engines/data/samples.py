"""The session's inputs: what the user gave and made-up data, checked against the model, kept as
arrays on disk.

``inputs/<digest>/index.json`` names the feeds and one ``.npy`` an array; the digest is that of the
index, which holds each array's. A folder that has its name is whole.
"""

import functools
import hashlib
import math
import os
import secrets
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from narrowdown.engines import sources
from narrowdown.engines.array import Array
from narrowdown.engines.compare.loops import say_carried
from narrowdown.engines.data import InputProblem, files, near, packed, roles, sequences
from narrowdown.engines.data.arrays import write_npy
from narrowdown.engines.data.sequences import Loop
from narrowdown.engines.graph import Tensor, load
from narrowdown.engines.graph.codes import find_codes
from narrowdown.engines.graph.load import StoredModel, np_dtype
from narrowdown.engines.nearest import join_some, suggest_or_list, suggestion
from narrowdown.engines.probe import GIVEN, MADE_UP, STEP, LoadInputs, SampleInfo, is_given
from narrowdown.engines.store import (
    Damaged,
    Store,
    atomic,
    decoding,
    digest_file,
    regular,
    write_atomically,
)
from narrowdown.engines.store.memory import SMALL

__all__ = [
    "InputProblem", "Span", "count_rows_alone", "count_score_rows", "find_span", "keep_feeds", "load_feed", "load_inputs",
]  # fmt: skip

Dims = tuple[int | str, ...]
Run = Callable[[Mapping[str, Array]], dict[str, Array]]  # inputs to outputs, by name


class _Kept(msgspec.Struct, frozen=True):
    """One array of a feed on disk. Types that numpy lacks (bfloat16, ...) lie as unsigned integers
    of their size."""

    file: str
    dtype: str
    sha256: str


class _Feed(msgspec.Struct, frozen=True, omit_defaults=True):
    """``rows`` counts the rows that scores can be split into, also where one of them cannot be fed
    alone. ``steps``: of a sequence, the shapes of each array in turn, a single one where it is the
    same in all. Its arrays hold the values of all steps, one behind the other: those of the inputs,
    of which ``info`` has shapes, and what the reference gave. Of a carried input only the first is
    held, as the others are what the reference gave."""

    info: SampleInfo
    rows: int
    arrays: dict[str, _Kept]
    steps: dict[str, tuple[tuple[int, ...], ...]] = {}


class _Index(msgspec.Struct, frozen=True, omit_defaults=True):
    format: int
    feeds: tuple[_Feed, ...]
    loop: Loop | None = None
    reference: str = ""  # whose states and outputs these are


class _Wanted(NamedTuple):
    """One input of the model. ``dims`` is None where no shape is declared."""

    tensor: Tensor
    dims: Dims | None


def load_inputs(
    probe: LoadInputs, model: StoredModel, store: Store, run: Run | None = None
) -> dict[str, Any]:
    """Make the session's inputs. ``run``: of the reference, which makes the states of sequences.
    Gives the facts of the probe. Raises ``InputProblem``."""
    _check_unchanged(probe)
    return _Loading(probe, model, store, run).write_inputs()


def load_feed(store: Store, inputs: str, sample: str) -> dict[str, Array]:
    """The arrays of a sample by input name, read-only, memory-mapped where large. ``real:0/5`` is
    row 5 alone; a sequence is its last step.

    Raises ``InputProblem`` for a sample that the inputs do not hold, ``Damaged``.
    """
    return pick_step(load_steps(store, inputs, sample), sample)


def load_steps(
    store: Store, inputs: str, sample: str, reference: str = ""
) -> list[dict[str, Array]]:
    """Of each step of the sequence that a sample is or is a part of: what the reference is fed and,
    where it is this one, what it gave, by name; of any other sample the one feed. Raises
    ``InputProblem``, ``Damaged``."""
    name, _, row = sample.partition("/")
    folder = store.inputs / inputs
    found = _find_feed(folder, name)
    if found.steps and (not row or row.startswith(STEP)):
        same = reference == _read_index(folder).reference
        return _read_steps(folder, found, found.arrays if same else found.info.shapes)
    arrays = {key: _read_array(folder, kept) for key, kept in found.arrays.items()}
    if not row:
        return [arrays]
    if not row.isdigit() or int(row) >= found.info.rows:
        raise InputProblem(
            f"The feed '{name}' has no row {row} that can be fed alone (it has {found.info.rows})."
        )
    return [{key: value[int(row) : int(row) + 1] for key, value in arrays.items()}]


def pick_step(steps: Sequence[dict[str, Array]], sample: str) -> dict[str, Array]:
    """The one that a sample names, of what ``load_steps`` gives for it. Raises ``InputProblem``."""
    name, _, number = sample.partition(f"/{STEP}")
    if number and (not number.isdigit() or int(number) >= len(steps)):
        raise InputProblem(f"'{name}' has no step '{number}' (it has {len(steps)}).")
    return steps[int(number or -1)]


def _read_steps(folder: Path, found: _Feed, names: Iterable[str]) -> list[dict[str, Array]]:
    """The values of these arrays at each step of a sequence."""
    carried = found.info.carried

    def read(name: str) -> list[Array]:
        shapes, flat = found.steps[name], _read_array(folder, found.arrays[name])
        ends = np.cumsum([math.prod(shape) for shape in shapes])
        if name in carried:
            first = flat[: ends[0]].reshape(shapes[0])
            return [first, *read(carried[name])[: len(shapes) - 1]]
        return [part.reshape(s) for part, s in zip(np.split(flat, ends[:-1]), shapes, strict=True)]

    values = {name: read(name) for name in names}
    return [
        {name: each[min(step, len(each) - 1)] for name, each in values.items()}
        for step in range(found.info.steps)
    ]


def find_loop(store: Store, inputs: str, sample: str) -> tuple[Loop, int] | None:
    """What goes back from step to step, and how many there are; None of what is no whole
    sequence. Raises ``InputProblem``."""
    loop = _read_index(store.inputs / inputs).loop
    if loop is None or "/" in sample:
        return None
    return loop, _find_feed(store.inputs / inputs, sample).info.steps


def count_score_rows(store: Store, inputs: str, sample: str) -> int:
    """How many rows the scores of a feed split into; 0 for none and for a single row. Raises
    ``InputProblem``."""
    return 0 if "/" in sample else _find_feed(store.inputs / inputs, sample).rows


def count_rows_alone(store: Store, inputs: str, sample: str) -> int:
    """How many rows the feed of a sample has that can each be fed alone; 0 for none. Raises
    ``InputProblem``."""
    return _find_feed(store.inputs / inputs, sample.partition("/")[0]).info.rows


class Span(msgspec.Struct, frozen=True):
    """What one build can serve: shapes by input name, dimension by dimension the smallest and the
    largest."""

    least: dict[str, tuple[int, ...]]
    most: dict[str, tuple[int, ...]]

    def dims(self) -> Iterator[tuple[str, int]]:
        """(input, dimension) of those that are not always the same."""
        for name, least in self.least.items():
            yield from (
                (name, d)
                for d, (a, b) in enumerate(zip(least, self.most[name], strict=True))
                if a != b
            )


def find_span(store: Store, inputs: str, sample: str = "") -> Span | None:
    """The shapes of the sample's feed, its rows alone and all of them together; without a sample
    those of all feeds. None where nothing differs, or where the feeds have not the same inputs with
    as many dimensions. Raises ``InputProblem``."""
    folder = store.inputs / inputs
    feeds = (_find_feed(folder, sample.partition("/")[0]),) if sample else _read_index(folder).feeds
    least: dict[str, tuple[int, ...]] = {}
    most: dict[str, tuple[int, ...]] = {}
    for feed in feeds:
        # Of a sequence those of all steps.
        shapes = [
            (n, s) for n, shape in feed.info.shapes.items() for s in feed.steps.get(n, (shape,))
        ]
        ranks = {(name, len(shape)) for name, shape in shapes}
        known = {(name, len(shape)) for name, shape in most.items()} or ranks
        if ranks != known or len(ranks) != len(feed.info.shapes) or not ranks:
            return None
        for name, shape in shapes:
            small = (1, *shape[1:]) if feed.info.rows else shape
            least[name] = tuple(map(min, least.get(name, small), small))
            most[name] = tuple(map(max, most.get(name, shape), shape))
    return Span(least, most) if least != most else None


class _Loading:
    """One LoadInputs probe on its way."""

    def __init__(
        self, probe: LoadInputs, model: StoredModel, store: Store, run: Run | None
    ) -> None:
        self.probe, self.store, self.model, self.index = probe, store, model, model.index
        self.run = run
        self.wanted = {
            self.index.tensors[t].name: _Wanted(
                self.index.tensors[t], _declared_shape(model, self.index.tensors[t])
            )
            for t in self.index.inputs
        }
        self.dims = {name: wanted.dims for name, wanted in self.wanted.items()}
        names = [self.index.tensors[t].name for t in self.index.outputs]
        self.loop = sequences.resolve(probe, self.wanted, names)
        self.carried = self.loop.carry or self._list_caches(names)
        self.fit = self._fit_sequence if self.loop.inputs else self._fit_feed
        self.batch = batch_dimension(model) if probe.batch and not self.loop.inputs else "none"
        self.kept: dict[
            str, Array
        ] = {}  # of given inputs that are no signal: what the first one has there
        self.seen: dict[str, list[Array]] = {}  # of the others: what was given
        self.warnings: dict[str, None] = {}
        self.guesses: dict[str, None] = {}
        self.large: dict[str, float] = {}  # by input, where a given one is beyond what FP16 holds
        tensors = (wanted.tensor for wanted in self.wanted.values())
        if odd := next((t for t in tensors if t.dtype in ("", "sequence", "optional")), None):
            raise InputProblem(
                f"The model's input '{odd.name}' is no plain tensor (a sequence, say); such models cannot be fed here."
            )
        for name in (*probe.shapes, *(n for n in probe.ranges if n)):
            if name not in self.wanted:
                raise InputProblem(
                    f"The model has no input '{name}'.{suggest_or_list(name, self.wanted)}"
                )

    def write_inputs(self) -> dict[str, Any]:
        digest, feeds = _keep_inputs(
            self.store,
            self._make_near_feeds if self.probe.base else self._load_feeds,
            self.loop if self.loop.inputs else None,
            self.probe.reference,
        )
        codes, half = find_codes(self.model), self._find_half_types()
        # Of what a loop makes by itself nothing was guessed.
        made = tuple(f"'{n}'" for n in (*self.carried, *self._followers))
        return {
            "inputs": digest,
            "samples": [msgspec.to_builtins(f.info) for f in feeds],
            "batched": [f.info.id for f in feeds if f.rows],
            "guesses": roles.join_guesses(g for g in self.guesses if not g.startswith(made)),
            "warnings": list(self.warnings),
            "codes": codes.held,
            "rounded": codes.rounded,
            "half": half[0],
            "mostly_half": half[1],
            "large": self.large,
            "suggested": self._suggest_loop(),
        }

    def _suggest_loop(self) -> list[tuple[str, str]]:
        """What to give where a file beside the model tells what goes back into inputs, or outputs look
        like it."""
        ends = (
            {
                (info := self.index.tensors[t]).name: (
                    info.dtype,
                    _declared_shape(self.model, info),
                )
                for t in each
                # What a Loop or Scan ends with is no state of the next run of the model.
                if not ((maker := self.index.made_by(t)) and maker.holds_graphs)
            }
            for each in (self.index.inputs, self.index.outputs)
        )
        return [] if self.loop.inputs else list(self.probe.suggested) or sequences.suggest(*ends)

    def _list_caches(self, outputs: Sequence[str]) -> dict[str, str]:
        """Of what names and shapes suggest those that grow, which are empty in the first step."""
        patterns = tuple(p for option, p in self._suggest_loop() if option == "carry")
        asked = msgspec.structs.replace(self.probe, carry=patterns)
        pairs = sequences.resolve(asked, self.wanted, outputs).carry
        return {
            n: o for n, o in pairs.items() if 0 in sequences.first_shape(self.dims[n] or (), {})
        }

    def _find_half_types(self) -> tuple[str, str]:
        """``fp16`` or ``bf16`` where nodes of the model give such tensors, and where most do that give
        floats."""
        made = Counter(t.dtype for t in self.index.tensors if t.kind == "node")
        half = "fp16" if made["float16"] else "bf16" if made["bfloat16"] else ""
        return half, half * (made["float16"] + made["bfloat16"] > made["float32"])

    def _load_feeds(self, folder: Path) -> list[_Feed]:
        feeds: list[_Feed] = []
        first: dict[str, tuple[int, ...]] = {}
        for source, arrays in self._read_given():
            try:
                fitted = self.fit(arrays, source)
            except InputProblem as problem:
                told = f"{problem} {say_carried(self._suggest_loop())}".rstrip()
                raise InputProblem(told) from problem
            self._note_large_values(fitted)
            feeds.append(self._write_feed(folder, f"{GIVEN}{len(feeds)}", source, fitted))
            first = first or feeds[0].info.shapes
        if self.probe.random or not feeds:
            self._note_given([self._read_raw(folder, feed) for feed in feeds])
            feeds.append(
                self._write_feed(folder, MADE_UP, "random by role", self._draw_sample(first))
            )
        return feeds

    def _note_large_values(self, arrays: Mapping[str, Array]) -> None:
        for name, array in arrays.items():
            if array.dtype.kind != "f":
                continue
            most = float(np.abs(array[np.isfinite(array)]).max(initial=0.0))
            if most > float(np.finfo(np.float16).max):
                self.large[name] = max(most, self.large.get(name, 0.0))

    # -- near those that there are

    def _make_near_feeds(self, folder: Path) -> list[_Feed]:
        """Feeds that ``base`` does not hold: of the user's scripts asked once more, then made from
        those that it holds."""
        base = self.store.inputs / self.probe.base
        held = _read_index(base).feeds
        real = [kept for kept in held if is_given(kept.info.id)]
        if not any(kept.rows for kept in held):  # seen to be none, or declared as none
            self.batch = "none"
        feeds: list[_Feed] = []

        def keep(source: str, arrays: Mapping[str, Array]) -> None:
            feeds.append(
                self._write_feed(folder, f"near:{self.probe.start + len(feeds)}", source, arrays)
            )

        known = [_list_digests(kept) for kept in held]
        for source, arrays in self._read_given() if self.probe.sources else ():
            keep(source, self.fit(arrays, source))
            if _list_digests(feeds[-1]) in known:
                for array in feeds.pop().arrays.values():
                    (folder / array.file).unlink()
            if len(feeds) == self.probe.near:
                return feeds
        numbers = range(self.probe.start + len(feeds), self.probe.start + self.probe.near)
        if real:
            for source, arrays in self._vary_feeds(base, real, numbers):
                keep(source, arrays)
        else:
            shapes = held[0].info.shapes
            for number in numbers:
                # The session's own draw is that of its seed: no later one may be it again.
                keep("random by role", self._draw_sample(shapes, self.probe.seed + 1 + number))
        return feeds

    def _vary_feeds(
        self, base: Path, real: Sequence[_Feed], numbers: Sequence[int]
    ) -> Iterator[tuple[str, dict[str, Array]]]:
        """(what it is, arrays) of each number: one of the real feeds, varied."""
        given = [self._read_raw(base, kept) for kept in real]
        parts = [_split_rows(arrays, kept.rows) for arrays, kept in zip(given, real, strict=True)]
        samples = [sample for rows in parts for sample in rows]
        what = near.classify_inputs(self.index, samples)
        # A quantized model is calibrated for what is usual: it has no room beyond, and steps too
        # coarse for what is faint.
        narrow = bool(find_codes(self.model).rounded)
        firsts = [sum(map(len, parts[:i])) for i in range(len(parts))]
        for number in numbers:
            which = number % len(real)
            # A feed of rows is varied row by row, each in its own way.
            made = [
                near.vary_sample(
                    samples,
                    firsts[which] + row,
                    number * len(parts[which]) + row,
                    what,
                    self.probe.seed,
                    narrow=narrow,
                )
                for row in range(len(parts[which]))
            ]
            ways = dict.fromkeys(way for way, _ in made)
            arrays = {
                n: self._keep_range(
                    n, np.concatenate([a[n] for _, a in made]) if len(made) > 1 else made[0][1][n]
                )
                for n in made[0][1]
            }
            yield f"near {real[which].info.id}: {', '.join(ways)}", arrays

    def _keep_range(self, name: str, made: Array) -> Array:
        """The values within the range that the user gave for this input, where one was given."""
        bounds = self.probe.ranges.get(name, self.probe.ranges.get(""))
        if bounds is None or made.dtype.kind in "OSUTb":
            return made
        kept: Array = np.clip(made, *np.array(bounds).astype(made.dtype))
        return kept

    # -- sequences

    def _read_raw(self, folder: Path, feed: _Feed) -> dict[str, Array]:
        """A feed as it was given: of a sequence its first state, and the values of all steps for
        what nothing goes back into."""
        if not feed.steps:
            return {name: _read_array(folder, kept) for name, kept in feed.arrays.items()}
        first = _read_steps(folder, feed, feed.info.shapes)[0]
        for name in first.keys() - self.loop.inputs - self._followers.keys():
            shapes = feed.steps[name]
            if len(shapes) > 1:
                first[name] = _read_array(folder, feed.arrays[name]).reshape(-1, *shapes[0])
        return first

    @functools.cached_property
    def _followers(self) -> dict[str, str]:
        """Positions and masks beside what is carried, by what they are: they go on where that
        grows."""
        wanted = self.wanted.items() if self.carried or self.loop.inputs else ()
        kinds = {name: self._guess_role(w.tensor).kind for name, w in wanted}
        return {n: kind for n, kind in kinds.items() if kind in ("positions", "mask")}

    def _fit_sequence(self, arrays: Mapping[str, Array], source: str) -> dict[str, Array]:
        """The sequence with exactly the model's inputs, in its types and shapes; a state that is
        not given is zeros."""
        count = sequences.count_steps(arrays, self.dims, self.probe.steps)
        first = self._add_states(sequences.take_step(arrays, self.dims, 0))
        fitted = [
            self._fit_feed({**first, **sequences.take_step(arrays, self.dims, step)}, source)
            for step in range(count)
        ]
        return {
            name: np.stack([step[name] for step in fitted])
            if name in arrays and sequences.is_stepped(arrays[name], self.dims[name])
            else value
            for name, value in fitted[0].items()
        }

    def _add_states(self, step: dict[str, Array]) -> dict[str, Array]:
        """The first step with zeros for each carried input that it lacks, and with positions and
        masks for all that it holds."""
        known = {
            d: n
            for name, array in step.items()
            for d, n in zip(self.dims.get(name) or (), array.shape, strict=False)
            if isinstance(d, str) and d
        }
        past = 0
        for name in self.carried:
            dims = self.dims[name] or ()
            shape = self.probe.shapes.get(name) or sequences.first_shape(
                dims, known, self.probe.cache
            )
            if name not in step:
                step[name] = np.zeros(shape, np_dtype(self.wanted[name].tensor.dtype))
            grows = [n for n, first in zip(step[name].shape, shape, strict=False) if not first]
            past = max(past, *grows, 0)
        given = (a for name, a in step.items() if name not in self._followers)
        ids = next((a for a in given if a.dtype.kind in "iu" and a.ndim > 1), None)
        for name, kind in self._followers.items():
            if name not in step and ids is not None:
                length, dtype = ids.shape[-1], np_dtype(self.wanted[name].tensor.dtype)
                line = (
                    np.arange(past, past + length)
                    if kind == "positions"
                    else np.ones(past + length)
                )
                step[name] = np.broadcast_to(line, (*ids.shape[:-1], line.size)).astype(dtype)
        return step

    def _draw_sample(
        self, shapes: Mapping[str, tuple[int, ...]], seed: int | None = None
    ) -> dict[str, Array]:
        """A made-up feed, or sequence: other values for each step, the first state zeros."""
        seed = self.probe.seed if seed is None else seed
        later = {*self.carried, *self._followers}  # of which the shapes are another step's
        fed = {n: s for n, s in shapes.items() if n not in later and n not in self.loop.tokens}
        drawn = [
            # Far from the seeds of other sequences.
            {n: a for n, a in self._draw_feed(fed, seed + 1_000_003 * k).items() if n not in later}
            for k in range((self.probe.steps or sequences.USUAL) if self.loop.inputs else 1)
        ]
        if not self.loop.inputs:
            return self._add_states(drawn[0])
        made = {
            name: value
            if name in self.loop.tokens or name in self.kept
            else np.stack([step[name] for step in drawn])
            for name, value in drawn[0].items()
        }
        return {**self._add_states(sequences.take_step(made, self.dims, 0)), **made}

    def _write_sequence(
        self, folder: Path, name: str, source: str, raw: Mapping[str, Array]
    ) -> _Feed:
        """A sequence with the state that the reference has at each step."""
        assert self.run is not None
        dims, count = self.dims, sequences.count_steps(raw, self.dims, self.probe.steps)
        kinds = {
            n: k for n, k in self._followers.items() if not sequences.is_stepped(raw[n], dims[n])
        }
        steps: list[dict[str, Array]] = []  # what each is fed, and what it gives
        back: dict[str, Array] = {}
        taken = 0
        for number in range(count):
            fed = {**sequences.take_step(raw, dims, number), **back}
            if steps:
                fed |= sequences.follow(self.loop, steps[-1], back, kinds)
            steps.append({**fed, **self.run(fed)})
            back = sequences.take_back(self.loop, fed, steps[-1])
            taken += sum(array.nbytes for array in steps[-1].values())
            if taken > packed.most_bytes():
                raise InputProblem(
                    f"The values of {number + 1} of {count} steps take {taken:,} bytes, more than half of this machine's "
                    "memory; ask for fewer with --steps."
                )
        arrays, shapes = {}, {}
        for key in steps[0]:
            values = [step[key] for step in steps]
            if all(v is values[0] or np.array_equal(v, values[0]) for v in values):
                values = values[:1]
            shapes[key] = tuple(tuple(int(d) for d in v.shape) for v in values)
            held = values[:1] if key in self.loop.carry else values
            arrays[key] = np.concatenate([v.reshape(-1) for v in held])
        info = SampleInfo(
            name,
            source,
            steps=count,
            carried=self.loop.carry,
            chosen=tuple(self.loop.tokens.values()),
            shapes={key: shapes[key][-1] for key in self.wanted},
        )
        return _Feed(info, 0, _write_arrays(folder, name, arrays), shapes)

    # -- what the user gave

    def _read_given(self) -> Iterator[tuple[str, Mapping[str, Array]]]:
        """Whole feeds in the order of the sources, then those put together from files of one input
        each."""
        parts: dict[str, list[tuple[str, Array]]] = {}
        for source in self.probe.sources:
            for given in files.read(source, self.wanted, self.probe.folder):
                if given.warning:
                    self.warnings[given.warning] = None
                elif given.alone:
                    name, array = self._assign_input(given)
                    parts.setdefault(name, []).append((given.source, array))
                else:
                    yield given.source, given.arrays
        if not parts:
            return
        count = max(map(len, parts.values()))
        for name, found in parts.items():
            if len(found) not in (1, count):
                raise InputProblem(
                    f"There are {len(found)} files for the input '{name}' and {count} for another; give as many for each."
                )
        for i in range(count):
            chosen = {name: found[i if len(found) > 1 else 0] for name, found in parts.items()}
            yield (
                ", ".join(dict.fromkeys(source for source, _ in chosen.values())),
                {n: a for n, (_, a) in chosen.items()},
            )

    def _assign_input(self, given: files.Given) -> tuple[str, Array]:
        """(input, array) of a file that holds one array."""
        (name, array), *_ = given.arrays.items()
        if given.image:
            fitting = [n for n, w in self.wanted.items() if _image_layout(w.dims)]
            name = name or (fitting[0] if len(fitting) == 1 else "")
        elif not name and len(self.wanted) == 1:
            name = next(iter(self.wanted))
        if not name:
            what = "image" if given.image else "array"
            raise InputProblem(
                f"'{given.source}' holds one {what}, and it is not clear for which of the inputs {_list_names(self.wanted)}: "
                f"write {next(iter(self.wanted), 'x')}={given.source}, or name the file after its input."
            )
        if given.raw:
            return name, self._view_raw(name, array, given.source)
        return name, self._fit_image(name, array, given.source) if given.image else array

    def _view_raw(self, name: str, data: Array, source: str) -> Array:
        """Bytes as values of the input's type and shape; where one dimension is open, the file's
        size tells it."""
        tensor, dims = self.wanted[name].tensor, self.probe.shapes.get(name, self.wanted[name].dims)
        where = f"'{source}' holds {data.size:,} bytes, and the input '{name}'"
        if tensor.dtype == "string" or dims is None:
            raise InputProblem(
                f"{where} is {'text' if dims is not None else 'of no declared shape'}: give it as .npy."
            )
        try:
            return data.view(np_dtype(tensor.dtype)).reshape(
                [-1 if isinstance(d, str) else d for d in dims]
            )
        except ValueError:
            raise InputProblem(
                f"{where} is {tensor.dtype} {_show_dims(tuple(dims))}: give as many bytes as that takes, or say its shape with "
                f"--input-shapes {name}:[...]."
            ) from None

    def _fit_image(self, name: str, pixels: Array, source: str) -> Array:
        """uint8 [height, width, 4] in the input's layout, size and type."""
        from PIL import Image  # the image was read with it

        dims, dtype = self.wanted[name].dims, np_dtype(self.wanted[name].tensor.dtype)
        layout = _image_layout(dims)
        if dims is None or not layout:
            raise InputProblem(
                f"'{source}' is an image, and the input '{name}' {_show_dims(dims)} is not shaped like one."
            )
        channels, height, width = (dims[layout.index(c)] for c in "CHW")
        size = tuple(
            int(d) if isinstance(d, int) else pixels.shape[k] for k, d in enumerate((height, width))
        )
        picture = Image.fromarray(pixels).convert(_MODES[int(channels)])
        fitting = picture.resize((size[1], size[0]), Image.Resampling.BILINEAR)
        pixels = np.asarray(fitting).reshape(*size, int(channels))
        if dtype.kind in "iu":
            array, scale = pixels.astype(dtype), "0 to 255"
        else:
            array, scale = (pixels.astype(np.float32) / 255).astype(dtype), "0 to 1"
        self.guesses[f"'{source}' was read as {size[0]} by {size[1]} pixels from {scale}."] = None
        return np.transpose(array[None], ["NHWC".index(axis) for axis in layout])

    def _fit_feed(self, arrays: Mapping[str, Array], source: str) -> dict[str, Array]:
        """The feed with exactly the model's inputs, in its types and shapes; an empty cache where
        none is given."""
        arrays = self._add_states(dict(arrays))
        for name, wanted in self.wanted.items():
            if name not in arrays:
                has = f"it has {_list_names(arrays)}" if arrays else "it is empty"
                shape = "" if wanted.dims is None else f" {_show_dims(wanted.dims)}"
                wants = f" The model wants {wanted.tensor.dtype}{shape} there."
                near = suggestion(name, arrays, " ")
                do = f" Save the array under the name '{name}'." if arrays and not near else ""
                raise InputProblem(f"'{source}' lacks the input '{name}' ({has}).{wants}{near}{do}")
        if extra := [name for name in arrays if name not in self.wanted]:
            self.warnings[
                f"'{source}' also holds {_list_names(extra)}, which the model does not have: ignored."
            ] = None
        fitted: dict[str, Array] = {}
        for name, wanted in self.wanted.items():
            array = self._convert_dtype(arrays[name], wanted.tensor, source)
            self._check_shape(array, wanted, source)
            if (
                array.dtype.kind not in "OSUTbiu"
                and array.size
                and not np.isfinite(array.astype(np.float64)).all()
            ):
                self.warnings[f"The input '{name}' in '{source}' holds NaN or infinite values."] = (
                    None
                )
            fitted[name] = array
        return fitted

    def _convert_dtype(self, array: Array, tensor: Tensor, source: str) -> Array:
        """The array in the model's type, where that loses nothing, or only digits of a float."""
        where = f"The input '{tensor.name}' in '{source}'"
        if tensor.dtype == "string":
            if array.dtype.kind not in "OSUT":
                raise InputProblem(
                    f"{where} holds {array.dtype} values, and the model wants strings."
                )
            return (
                np.char.decode(array, "utf-8") if array.dtype.kind == "S" else array.astype(np.str_)
            )
        dtype = np_dtype(tensor.dtype)
        if array.dtype == dtype:
            return array
        if (
            array.dtype.kind == "V"
            and array.dtype.itemsize == dtype.itemsize
            and dtype.isbuiltin == 2
        ):
            return array.view(dtype)  # numpy saves bfloat16 and its like as raw bytes
        if array.dtype.kind not in "biufV" or array.dtype.names:
            raise InputProblem(
                f"{where} holds {array.dtype} values, and the model wants {tensor.dtype}."
            )
        with np.errstate(all="ignore"):
            cast = array.astype(dtype)
            back = cast.astype(array.dtype)
        floats = _is_float(array.dtype) and _is_float(dtype)
        overflows = floats and bool(
            (~np.isfinite(cast.astype(np.float64)) & np.isfinite(array.astype(np.float64))).any()
        )
        same = np.array_equal(back, array) and np.array_equal(cast < 0, array < 0)
        if same or (floats and not overflows):
            if array.dtype.kind != dtype.kind or floats:
                self.warnings[f"{where} is {array.dtype} and was converted to {tensor.dtype}."] = (
                    None
                )
            return cast
        why = (
            "do not fit into"
            if overflows or array.dtype.kind in "iu"
            else "would be changed by a conversion to"
        )
        raise InputProblem(
            f"{where} holds {array.dtype} values that {why} the model's {tensor.dtype}."
        )

    def _check_shape(self, array: Array, wanted: _Wanted, source: str) -> None:
        if not _fits(wanted.dims, array.shape):
            missing = len(wanted.dims or ()) == array.ndim + 1
            hint = " A batch dimension in front seems to be missing." if missing else ""
            raise InputProblem(
                f"The input '{wanted.tensor.name}' in '{source}' has the shape {list(array.shape)}, and the model wants "
                f"{_show_dims(wanted.dims)}.{hint}"
            )

    # -- random by role

    def _draw_feed(self, real: Mapping[str, tuple[int, ...]], seed: int) -> dict[str, Array]:
        """A feed by role: shapes that the user gave, else those of the first real feed, else
        guessed ones."""
        made: dict[str, Array] = self.kept | self._shape_values()
        shapes = self._choose_shapes(made, real)
        # A width of pixels is no length of a text beside them.
        plain = [
            name for name, w in self.wanted.items() if self._guess_role(w.tensor).kind != "image"
        ]
        longest = max((n for name in plain for n in shapes[name][1:]), default=1)
        dtypes = {
            n: np_dtype(w.tensor.dtype)
            for n, w in self.wanted.items()
            if w.tensor.dtype != "string"
        }
        drawn = [
            roles.Wanted(
                name, dtype, shapes[name], self.probe.ranges.get(name, self.probe.ranges.get(""))
            )
            for name, dtype in dtypes.items()
            if name not in made
        ]
        made.update(roles.draw_ranged(drawn, seed))
        for name, wanted in self.wanted.items():
            if name in made:
                continue
            if name in self.seen:
                self.guesses[f"'{name}': drawn at random from the values that you gave."] = None
                made[name] = near.draw_values(self.seen[name], name, shapes[name], seed)
            else:
                role = self._guess_role(wanted.tensor)
                self.guesses[f"'{name}': {role.because}."] = None
                dtype = dtypes.get(name, np.dtype(np.str_))
                made[name] = roles.draw_values(role, name, dtype, shapes[name], seed, longest)
        return {name: made[name] for name in self.wanted}

    def _choose_shapes(
        self, made: Mapping[str, Array], real: Mapping[str, tuple[int, ...]]
    ) -> dict[str, tuple[int, ...]]:
        """Of each input. Raises ``InputProblem``."""
        shapes: dict[str, tuple[int, ...]] = {}
        symbols: dict[str, int] = {}
        given = {**real, **self.probe.shapes}
        for name, wanted in self.wanted.items():
            if name in made:
                shapes[name] = made[name].shape
            elif name in given:
                shapes[name] = told = tuple(given[name])
                if not _fits(wanted.dims, told):
                    raise InputProblem(
                        f"The shape {list(told)} given for '{name}' does not fit the model's {_show_dims(wanted.dims)}."
                    )
                named = zip(wanted.dims or (), told, strict=False)
                symbols.update({d: n for d, n in named if isinstance(d, str) and d})
        for name, wanted in self.wanted.items():
            if name not in shapes:
                shapes[name] = self._guessed_shape(wanted, symbols)
        for name in self.wanted:
            if 8 * math.prod(shapes[name]) > packed.most_bytes():  # they are drawn as doubles
                raise InputProblem(
                    f"Random values of the shape {list(shapes[name])} for '{name}' would not fit into memory."
                )
        return shapes

    def _note_given(self, given: Sequence[Mapping[str, Array]]) -> None:
        """What made-up values are taken from. What is no signal (a sampling rate, a mask), or the
        same in all, chooses what the model does: made-up values beside it are of use only with
        it."""
        first = given[0] if given else {}
        if all(np.array_equal(feed[name], first[name]) for feed in given for name in first):
            given = given[:1]
        for name, kind in (near.classify_inputs(self.index, given) if given else {}).items():
            if kind != "fixed":
                self.seen[name] = [feed[name] for feed in given]
            elif name not in self.probe.shapes and not {name, ""} & self.probe.ranges.keys():
                self.kept[name] = first[name]
                shown = (
                    f"{first[name].reshape(-1)[0]} as" if first[name].size == 1 else "the same as"
                )
                self.guesses[f"'{name}': {shown} in your first sample."] = None

    def _shape_values(self) -> dict[str, Array]:
        """Inputs that hold a shape themselves: a vector of integers with one element for each
        dimension given for it."""
        values: dict[str, Array] = {}
        for name, told in self.probe.shapes.items():
            wanted = self.wanted[name]
            whole = wanted.tensor.dtype.startswith(("int", "uint"))
            if whole and wanted.dims is not None and wanted.dims == (len(told),):
                values[name] = np.array(told, np_dtype(wanted.tensor.dtype))
                self.guesses[f"'{name}' was taken for a shape: its values are {list(told)}."] = None
        return values

    def _guess_role(self, tensor: Tensor) -> roles.Role:
        if self.probe.cautious:
            return roles.unguessed_role(tensor)
        weight = roles.compared_with(self.index, tensor.id)
        value = load.read_weight(self.model, weight).reshape(-1)[0] if weight >= 0 else None
        return roles.guess_role(self.index, tensor.id, None if value is None else float(value))

    def _guessed_shape(self, wanted: _Wanted, symbols: dict[str, int]) -> tuple[int, ...]:
        name = wanted.tensor.name
        if wanted.dims is None:
            self.guesses[
                f"'{name}' has no declared shape: one element was taken (--input-shapes changes it)."
            ] = None
            return (1,)
        shape, bound, guessed = roles.guess_shape(
            wanted.dims, bool(_image_layout(wanted.dims)), symbols
        )
        symbols.update(bound)
        if guessed:
            self.guesses[
                f"'{name}' was given the shape {list(shape)}: {', '.join(guessed)} (--input-shapes changes it)."
            ] = None
        return shape

    # -- to disk

    def _write_feed(
        self, folder: Path, name: str, source: str, arrays: Mapping[str, Array]
    ) -> _Feed:
        if self.loop.inputs:
            return self._write_sequence(folder, name, source, arrays)
        sizes = {array.shape[0] if array.ndim else 0 for array in arrays.values()}
        count = sizes.pop() if len(sizes) == 1 and self.batch != "none" else 0
        rows = count if count > 1 else 0  # one row is the feed itself
        return _write_feed(folder, name, source, arrays, rows, self.batch == "free")


def _split_rows(arrays: Mapping[str, Array], rows: int) -> list[Mapping[str, Array]]:
    """The feed's rows, each with its dimension 0; the feed itself where its rows are not told
    apart."""
    return (
        [{n: a[k : k + 1] for n, a in arrays.items()} for k in range(rows)]
        if rows > 1
        else [arrays]
    )


def batch_dimension(model: StoredModel) -> str:
    """``free``: dimension 0 of every input and output is an open batch, so single rows can be fed;
    ``fixed``: it is the same number, so scores have rows but none can be fed alone; ``none``
    otherwise."""
    index = model.index
    if not index.inputs or not index.outputs:
        return "none"
    firsts, lasts = (
        [(_declared_shape(model, index.tensors[t]) or [None])[0] for t in ends]
        for ends in (index.inputs, index.outputs)
    )
    if any(isinstance(d, str) for d in firsts):
        # Exporters often leave outputs' dimensions unnamed or name them anew; whether they follow
        # the batch, the run shows.
        open_all = all(isinstance(d, str) for d in (*firsts, *lasts))
        return "free" if open_all and len({d for d in firsts if d}) <= 1 else "none"
    return (
        "fixed"
        if firsts[0] is not None and set(firsts) == set(lasts) and len(set(firsts)) == 1
        else "none"
    )


def _declared_shape(model: StoredModel, tensor: Tensor) -> Dims | None:
    """The declared shape of an input or output: numbers, and the names of symbolic dimensions (""
    unnamed)."""
    info = model.inputs.get(tensor.name) or model.outputs.get(tensor.name)
    if (
        info is not None
        and info.type.HasField("tensor_type")
        and info.type.tensor_type.HasField("shape")
    ):
        return tuple(
            d.dim_value if d.HasField("dim_value") else d.dim_param
            for d in info.type.tensor_type.shape.dim
        )
    return None if tensor.shape is None else tuple(d if d >= 0 else "" for d in tensor.shape)


def _check_unchanged(probe: LoadInputs) -> None:
    """What a content key promises: the files are those that the session was opened with."""
    for source, digest in zip(probe.sources, probe.source_digests, strict=False):
        path = next((Path(p) for p in sources.paths(source) if Path(p).is_file()), None)
        if digest and path is not None and digest_file(path) != digest:
            raise InputProblem(
                f"'{path.name}' has changed since this session was opened; open a new session for the new content."
            )


_MODES = {1: "L", 3: "RGB", 4: "RGBA"}  # of Pillow, by the number of channels


def _image_layout(dims: Dims | None) -> str:
    """``NCHW`` or ``NHWC`` where an input is shaped like images, else ""."""
    if dims is None or len(dims) != 4:
        return ""
    return "NCHW" if dims[1] in roles.CHANNELS else "NHWC" if dims[3] in roles.CHANNELS else ""


def keep_feeds(
    store: Store, feeds: Sequence[Mapping[str, Array]], source: str
) -> tuple[str, list[str]]:
    """The digest of inputs that hold these feeds, ``real:0`` and so on, whose rows are not told
    apart; and their names."""
    names = [f"{GIVEN}{number}" for number in range(len(feeds))]

    def write(folder: Path) -> list[_Feed]:
        return [
            _write_feed(folder, name, source, feed) for name, feed in zip(names, feeds, strict=True)
        ]

    return _keep_inputs(store, write)[0], names


def _write_feed(
    folder: Path,
    name: str,
    source: str,
    arrays: Mapping[str, Array],
    rows: int = 0,
    alone: bool = False,
) -> _Feed:
    """``rows``: that scores can be split into; ``alone``: each can be fed alone."""
    kept = _write_arrays(folder, name, arrays)
    shapes = {key: tuple(int(d) for d in array.shape) for key, array in arrays.items()}
    return _Feed(SampleInfo(name, source, rows=rows if alone else 0, shapes=shapes), rows, kept)


def _keep_inputs(
    store: Store,
    write: Callable[[Path], list[_Feed]],
    loop: Loop | None = None,
    reference: str = "",
) -> tuple[str, list[_Feed]]:
    """Have the feeds written into a folder, and give it the name that follows from them: the
    digest."""
    folder = store.inputs / f".incoming-{os.getpid()}-{secrets.token_hex(4)}"
    folder.mkdir(parents=True)
    try:
        feeds = write(folder)
        index = msgspec.json.encode(_Index(1, tuple(feeds), loop, reference))
        digest = hashlib.sha256(index).hexdigest()
        _settle_folder(folder, store.inputs / digest, index)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return digest, feeds


def _write_arrays(folder: Path, name: str, arrays: Mapping[str, Array]) -> dict[str, _Kept]:
    kept: dict[str, _Kept] = {}
    for i, (key, array) in enumerate(arrays.items()):
        file = f"{name.replace(':', '-')}-{i}.npy"
        _write_array(folder / file, array)
        kind = "string" if array.dtype.kind in "OSUT" else array.dtype.name
        kept[key] = _Kept(file, kind, digest_file(folder / file))
    return kept


def _write_array(path: Path, array: Array) -> None:
    if array.dtype.kind in "OSUT":
        array = array.astype(np.str_)
    elif array.dtype.isbuiltin == 2:
        array = (
            np.ascontiguousarray(array)
            .view(np.dtype(f"u{array.dtype.itemsize}"))
            .reshape(array.shape)
        )
    with atomic(path) as temporary, temporary.open("wb") as file:
        write_npy(file, array)


def _settle_folder(folder: Path, target: Path, index: bytes) -> None:
    """Give a finished folder its name, or its files to an equal folder that is there already."""
    write_atomically(folder / "index.json", index)
    try:
        folder.replace(target)
    except OSError:
        if not (target / "index.json").exists():
            raise
        # What is there already may be damaged; what is put over it are the same bytes.
        for made in folder.iterdir():
            made.replace(target / made.name)


def _list_digests(feed: _Feed) -> dict[str, str]:
    return {name: array.sha256 for name, array in feed.arrays.items()}


def _read_array(folder: Path, kept: _Kept) -> Array:
    path = folder / kept.file
    if path.parent != folder:
        raise Damaged(
            f"inputs/{folder.name}/index.json", "is damaged: it names a file that lies elsewhere"
        )
    try:
        value: Array = np.load(
            path, mmap_mode="r" if regular.size(path) >= SMALL else None, allow_pickle=False
        )
    except (OSError, ValueError, EOFError) as error:
        why = "is gone" if isinstance(error, FileNotFoundError) else f"is damaged: {error}"
        raise Damaged(f"inputs/{folder.name}/{kept.file}", why) from error
    if kept.dtype != "string" and value.dtype.name != kept.dtype:
        value = value.view(np_dtype(kept.dtype))
    if not isinstance(value, np.memmap):
        value.flags.writeable = False
    return value


@functools.lru_cache(maxsize=16)
def _read_index(folder: Path) -> _Index:
    try:
        return decoding.decode(regular.read(folder / "index.json"), _Index)
    except (OSError, ValueError) as error:
        why = "is gone" if isinstance(error, FileNotFoundError) else f"is damaged: {error}"
        raise Damaged(f"inputs/{folder.name}/index.json", why) from error


def _find_feed(folder: Path, name: str) -> _Feed:
    index = _read_index(folder)
    for kept in index.feeds:
        if kept.info.id == name:
            return kept
    raise InputProblem(
        f"The session's inputs hold no sample '{name}'; they hold {_list_names(k.info.id for k in index.feeds)}."
    )


def _is_float(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "f" or (dtype.isbuiltin == 2 and "float" in dtype.name)


def _fits(dims: Dims | None, shape: Sequence[int]) -> bool:
    """Whether an input that is declared so takes a value of this shape."""
    return dims is None or (
        len(dims) == len(shape)
        and all(isinstance(d, str) or d == n for d, n in zip(dims, shape, strict=True))
    )


def _show_dims(dims: Dims | None) -> str:
    return "of no declared shape" if dims is None else f"[{', '.join(str(d) or '?' for d in dims)}]"


def _list_names(names: Iterable[str]) -> str:
    return join_some([f"'{n}'" for n in names])
