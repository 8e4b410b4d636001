"""An engine made of numbers: errors that nodes add, carry and absorb along a graph; it may break,
and faults may come and go."""

import functools
import hashlib
import random
from collections.abc import Mapping
from typing import Any

import msgspec

from narrowdown.engines.asking import Described, StepContext
from narrowdown.engines.compare.judge import Criterion, over, sign_failure
from narrowdown.engines.findings import Findings
from narrowdown.engines.graph import GraphIndex, Node, Tensor, ranges
from narrowdown.engines.graph.cut import node_ids, outputs_of, severed_of
from narrowdown.engines.probe import (
    Describe,
    LoadInputs,
    Measure,
    Measurement,
    SampleInfo,
    SampleResult,
    Score,
)
from narrowdown.engines.views import view_engine

RULE = Criterion(tolerance=0.01, precision="fp16")
PRESENT = {"present": True, "reason": ""}
MOST = 4000  # probes that no step may exceed on these small graphs
BROKEN = (
    Measurement(status="build-failed", message="no implementation"),
    Measurement(status="crash", signal=11, message="it died"),
    Measurement(status="timeout", message="it did not end"),
    Measurement(status="out-of-memory", message="no memory"),
    Measurement(status="unsupported", message="no such operator"),
    Measurement(status="error", message="it said something else"),
)


def graph(edges: list[tuple[int, ...]]) -> GraphIndex:
    """Node i reads the outputs of ``edges[i]`` (nodes before it), or the input where that is
    empty."""
    tensors = [Tensor(0, "x", "float32", "input", -1, (1, 4), 16)]
    tensors += [Tensor(i + 1, f"t{i}", "float32", "node", i, (1, 4), 16) for i in range(len(edges))]
    nodes = [
        Node(i, f"n{i}", "Op", "", tuple(p + 1 for p in reads) or (0,), (i + 1,))
        for i, reads in enumerate(edges)
    ]
    read = {p for reads in edges for p in reads}
    outputs = tuple(i + 1 for i in range(len(edges)) if i not in read)
    return GraphIndex("m", tuple(nodes), tuple(tensors), (0,), outputs)


def random_graph(n: int, rng: random.Random) -> GraphIndex:
    return graph([tuple(sorted(rng.sample(range(i), min(i, rng.randint(0, 3))))) for i in range(n)])


decode = functools.cache(ranges.decode)  # each sample of a probe asks for the same


class Simulated(msgspec.Struct, kw_only=True):
    """Answers probes. Every number is a relative error.

    ``added``   sample -> node -> what the node adds by itself, unless it is kept in higher
    precision. ``gain``    node -> what it makes of the largest error that it reads (1 where it says
    nothing, 0 absorbs it). ``broken``  how many of the questions break; always the same ones for
    the same ``seed``. The plain whole model never does. ``rate``    how often a run shows what the
    nodes add; with ``builds`` above 1 each build shows it in all its runs or in none. ``stubborn``
    nodes whose error no precision cures, nor the reference in their place. ``fragile``   nodes that
    give the largest error as soon as the engine itself gives them wrong values. ``rounding``  of a
    tensor that is fed as it would be stored; of none fed exactly. ``shy``       tensors whose
    watching cures everything. ``rare``, ``every``  what nodes add on every so-manieth of the
    samples that are made near the given ones, beside what they add
                  on the given one that it is near.
    ``spoiled``   sample -> (node, other, error): the one kept, the sample is wrong by so much,
    unless the other is, too. ``misread``   samples that a workaround is wrong on once it is a file.
    ``rows``, ``alone``  how many rows a feed has, and what part of its error among the others a row
    has alone. ``seconds``   that a run takes. ``keeps``     whether it can keep single nodes in
    higher precision. ``unanswered``, ``missed``  the questions that broke, and those whose runs did
    not show a fault that was there.
    """

    index: GraphIndex
    added: Mapping[str, Mapping[int, float]]
    gain: Mapping[int, float] = {}
    broken: float = 0.0
    rate: float = 1.0
    seed: int = 0
    looks: int = 1
    builds: int = 1
    stubborn: frozenset[int] = frozenset()
    fragile: frozenset[int] = frozenset()
    rounding: float = 0.0
    shy: frozenset[int] = frozenset()
    rare: Mapping[int, float] = {}
    every: int = 8
    spoiled: Mapping[str, tuple[int, int, float]] = {}
    misread: frozenset[str] = frozenset()
    rows: int = 0
    alone: float = 1.0
    seconds: float = 0.0
    made: dict[str, str] = {}
    keeps: bool = True
    unanswered: int = 0
    missed: int = 0
    asked: dict[str, Any] = {}
    hiding: dict[str, int] = {}

    @classmethod
    def single(cls, index: GraphIndex, added: Mapping[int, float], **rest: Any) -> "Simulated":
        return cls(index=index, added={"real:0": added}, asked={}, hiding={}, **rest)

    def findings(self) -> Findings:
        """After a comparison: the failure of the worst sample is locked; none where every sample
        passes."""
        samples = tuple(SampleInfo(s, "in.npz", rows=self.rows) for s in self.added)
        ids = [row for s in self.added for row in self._list_rows(s)]
        results = [SampleResult(s, self._scores(self._whole(s), self.index.outputs)) for s in ids]
        failing = [r for r in results if any(over(score, RULE) for score in r.outputs)]
        found = Findings(
            model="m",
            original="m",
            inputs="i",
            samples=samples,
            criterion=RULE,
            looks=self.looks,
            builds=self.builds,
        )
        if not failing:
            return found
        worst = max(failing, key=lambda r: max(score.rel_l2 for score in r.outputs))
        return msgspec.structs.replace(
            found, signature=sign_failure(worst, RULE, worst.sample), sample=worst.sample
        )

    def context(self, **rest: Any) -> StepContext:
        able = {"mark": PRESENT, "keep": PRESENT} if self.keeps else {"mark": PRESENT}
        info = {"precision": "fp16", "storage": "float16", "capabilities": able}
        return StepContext(
            engine="e",
            reference="r",
            findings=rest.pop("findings", self.findings()),
            engine_info=rest.pop("engine_info", view_engine(info)),
            **rest,
        )

    def __call__(self, probe: Any) -> Any:
        if isinstance(probe, Describe):
            return Described(self.index, Measurement())
        if isinstance(probe, LoadInputs):
            made = [{"id": f"near:{probe.start + k}", "source": "near"} for k in range(probe.near)]
            self.made |= {m["id"]: f"{probe.base}{probe.start}" for m in made}
            return Measurement(facts={"inputs": f"{probe.base}{probe.start}", "samples": made})
        assert isinstance(probe, Measure)
        question = repr(msgspec.to_builtins(probe))
        if question not in self.asked:
            assert len(self.asked) < MOST, "the search does not end"
            self.asked[question] = self._answer(probe, question)
        return self.asked[question]

    def _answer(self, probe: Measure, question: str) -> Measurement:
        feeds = {s.partition("/")[0] for s in probe.samples}
        assert all(self.made[s] == probe.inputs for s in feeds if s in self.made), (
            "none of these inputs"
        )
        rng = random.Random(hashlib.sha256(f"{self.seed}{question}".encode()).digest())
        if probe.engine == "r":
            return Measurement(results=self._results(probe, False))
        plain = (
            probe.candidate.nodes == ranges.ALL
            and not probe.marks
            and not probe.keep
            and not probe.righted
        )
        if not plain and rng.random() < self.broken:
            self.unanswered += 1
            return rng.choice(BROKEN)
        shown = [rng.random() < self.rate for _ in range(max(1, probe.runs))]
        shown = shown[:1] * len(shown) if self.builds > 1 else shown
        cured = not self.shy.isdisjoint(decode(probe.marks))
        wrong = self._results(probe, not cured)
        right = self._results(probe, False)
        self._count(probe, hidden=wrong != right and not any(shown))
        runs = [wrong if hit else right for hit in shown]
        others = tuple(r for r in runs[1:] if r != runs[0])
        facts = {"runs": len(runs)}
        return Measurement(
            results=runs[0], runs=others, varies=bool(others), facts=facts, run_seconds=self.seconds
        )

    def _count(self, probe: Measure, *, hidden: bool) -> None:
        """A fault is missed where none of the builds that a verdict needs has shown it."""
        question = repr(msgspec.to_builtins(msgspec.structs.replace(probe, attempt=0, save="")))
        self.hiding[question] = self.hiding.get(question, 0) + hidden
        self.missed += hidden and self.hiding[question] == self.builds

    def _list_rows(self, feed: str) -> tuple[str, ...]:
        return (
            tuple(f"{feed}/{k}" for k in range(self.rows))
            if self.rows and "/" not in feed
            else (feed,)
        )

    def _results(self, probe: Measure, wrong: bool) -> tuple[SampleResult, ...]:
        """One for each row of a whole feed."""
        return tuple(
            self._result(probe, row, wrong, self.alone if "/" in asked else 1.0)
            for asked in probe.samples
            for row in self._list_rows(asked)
        )

    def _result(self, probe: Measure, sample: str, wrong: bool, part: float = 1.0) -> SampleResult:
        index, candidate = self.index, probe.candidate
        inside = set(node_ids(index, candidate))
        severed = set(severed_of(index, candidate))
        keep, righted = frozenset(decode(probe.keep)), frozenset(decode(probe.righted))
        fed = self.rounding if probe.feed == "stored" else 0.0
        errors = (
            self._whole(sample, inside, severed, keep, righted, probe.written, fed) if wrong else {}
        )
        errors = {t: part * e for t, e in errors.items()}
        judged = outputs_of(index, candidate)
        effect: tuple[Score, ...] = ()
        if probe.effect:
            given = {t: errors.get(t, 0.0) for t in judged}
            seen = decode(probe.effect_on) or index.outputs
            effect = self._scores(self._transplanted(given), seen)
        return SampleResult(
            sample,
            self._scores(errors, judged),
            self._scores(errors, decode(probe.marks)),
            effect,
        )

    def _whole(
        self,
        sample: str,
        inside: set[int] | None = None,
        severed: set[int] | frozenset[int] = frozenset(),
        keep: frozenset[int] = frozenset(),
        righted: frozenset[int] = frozenset(),
        written: str = "",
        fed: float = 0.0,
    ) -> dict[int, float]:
        """Tensor -> error, with right values fed to what stands at the border, ``fed`` off."""
        assert self.keeps or not keep, "it keeps no nodes"
        exact, added = (keep | righted) - self.stubborn, self._added(sample)
        spoiled, other, by = self.spoiled.get(sample, (-1, -1, 0.0))
        by *= spoiled in keep and other not in keep
        misread = 0.5 * (bool(written) and sample in self.misread)
        errors: dict[int, float] = {}
        for node in self.index.nodes:
            if inside is not None and node.id not in inside:
                continue
            made = [t for t in node.reads if self.index.tensors[t].kind == "node"]
            read = max([fed if t in severed else errors.get(t, fed) for t in made], default=0.0)
            own = (
                misread
                + (0.0 if node.id in exact else added.get(node.id, 0.0))
                + by * (node.id == spoiled)
            )
            broken = node.id in self.fragile and read > RULE.tolerance
            errors[node.outputs[0]] = (
                10.0 if broken else min(10.0, self.gain.get(node.id, 1.0) * read + own)
            )
        return errors

    def _added(self, sample: str) -> Mapping[int, float]:
        kind, _, number = sample.partition("/")[0].partition(":")
        if kind != "near":
            return self.added.get(sample) or self.added.get(
                sample.partition("/")[0], next(iter(self.added.values()))
            )
        given = list(self.added.values())
        return {
            **given[int(number) % len(given)],
            **(self.rare if int(number) % self.every == 0 else {}),
        }

    def _transplanted(self, given: Mapping[int, float]) -> dict[int, float]:
        errors = dict(given)
        for node in self.index.nodes:
            if node.outputs[0] not in given:
                read = max((errors.get(t, 0.0) for t in node.reads), default=0.0)
                errors[node.outputs[0]] = min(10.0, self.gain.get(node.id, 1.0) * read)
        return errors

    def _scores(self, errors: Mapping[int, float], tensors: Any) -> tuple[Score, ...]:
        found = ((t, errors.get(t, 0.0)) for t in tensors)
        return tuple(Score(self.index.tensors[t].name, rel_l2=e, equal=e == 0) for t, e in found)
