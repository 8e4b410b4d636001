"""How the searching steps phrase their probes: one model, one sample, one signature, parts of the
graph as node sets."""

from collections.abc import Iterable

import msgspec

from narrowdown.engines.asking import Described, StepContext, StepRefused, Sub, asked
from narrowdown.engines.asking.layers.patched_culprits import cut_patches
from narrowdown.engines.compare.judge import Criterion, Signature, worst, worst_run
from narrowdown.engines.findings import Findings
from narrowdown.engines.graph import GraphIndex, ranges
from narrowdown.engines.probe import (
    Candidate,
    Describe,
    Edit,
    Measure,
    Measurement,
    SampleResult,
)

# Runs, of which the middle one counts. A run of 0.05 ms, timed so eight times beside other work
# (load 6), took 0.049 to 0.054; the mean of ten was up to 2.3, where the system had held up one of
# them.
TIMED = 10


class Inquiry(msgspec.Struct, frozen=True):
    """Everything that stays the same while a search changes the node set."""

    ctx: StepContext
    findings: Findings
    index: GraphIndex
    signature: Signature
    criterion: Criterion
    watched: tuple[int, ...]  # tensor ids of the signature's outputs
    # Tensors that are baked in as constants where they are cut, beside those that decide a shape.
    frozen: frozenset[int] = frozenset()
    live: tuple[
        int, ...
    ] = ()  # node ids that reach the model's outputs once earlier culprits are patched

    @property
    def everything(self) -> tuple[int, ...]:
        return self.live or tuple(range(len(self.index.nodes)))

    def candidate(self, nodes: Iterable[int], edits: tuple[Edit, ...] = ()) -> Candidate:
        """The cut of these nodes, with the outputs of earlier culprits patched wherever they are
        made inside.

        What is judged: the tensors that a live node outside reads, or that are the model's own;
        patched ones carry no error.
        """
        ids = frozenset(nodes)
        patches = frozenset(ranges.decode(self.findings.patches))
        judged, severed = cut_patches(self.index, self.everything, patches, ids)
        return self.cut(ids, judged, severed, edits)

    def cut(
        self,
        nodes: frozenset[int],
        outputs: Iterable[int] = (),
        severed: Iterable[int] = (),
        edits: tuple[Edit, ...] = (),
    ) -> Candidate:
        """The part as a worker cuts it. By the default rule it has constants, unless it is fed a
        frozen tensor."""
        feeds = set(self.index.boundary(nodes)[0]) if self.frozen else set()
        return Candidate(
            nodes=ranges.ALL if len(nodes) == len(self.index.nodes) else ranges.encode(nodes),
            outputs=ranges.encode(outputs),
            severed=ranges.encode(severed),
            constants=ranges.encode(self._baked(feeds)) if feeds & self.frozen else None,
            edits=edits,
        )

    def _baked(self, feeds: Iterable[int]) -> set[int]:
        """Those of the tensors that a cut holds as constants: the frozen ones, and what decides a
        shape by the default rule."""
        deciding = set(self.index.shape_like)
        return {
            t
            for t in feeds
            if t in self.frozen or (t in deciding and self.index.tensors[t].kind != "input")
        }

    def fed(self, nodes: Iterable[int]) -> tuple[int, ...]:
        """Tensors that the cut of these nodes is fed, ascending: no constants."""
        feeds = self.index.boundary(nodes)[0]
        baked = self._baked(feeds)
        return tuple(t for t in feeds if t not in baked)

    def of(self, engine: str) -> "Inquiry":
        """The same questions to another engine; as they are where none is named."""
        return (
            msgspec.structs.replace(self, ctx=msgspec.structs.replace(self.ctx, engine=engine))
            if engine
            else self
        )

    def whole(
        self,
        samples: tuple[str, ...],
        keep: Iterable[int] = (),
        *,
        engine: str = "",
        **rest: object,
    ) -> Measure:
        """The whole model on these samples with these nodes in FP32, and nothing else cured, run as
        often as a verdict needs."""
        looks = 1 if engine == self.ctx.reference else self.findings.looks
        probe = Measure(
            model=self.findings.model,
            inputs=self.findings.inputs,
            samples=samples,
            engine=engine or self.ctx.engine,
            reference=self.ctx.reference,
            candidate=Candidate(severed=ranges.encode(())),
            keep=ranges.encode(keep),
            righted=ranges.encode(()),
            runs=looks,
            exclusive=looks > 1,
            held=self.ctx.problem.held,
        )
        return msgspec.structs.replace(probe, **rest)

    def row(self, measurement: Measurement) -> SampleResult:
        """The result of the row that the signature was locked on, of a feed whose rows are told
        apart; else the worst one. Of several runs the worst: what comes and goes shows in some
        only."""
        results = worst_run(measurement, self.criterion).results
        named = next((r for r in results if r.sample == self.signature.sample), None)
        if named is not None or len(results) == 1:
            return named or results[0]
        sample = worst(results, self.criterion)[0]
        return next((r for r in results if r.sample == sample), results[0])


def open_inquiry(
    ctx: StepContext, findings: Findings, passing: Signature | None = None
) -> Sub[Inquiry]:
    """Describe the working model and return an Inquiry. Raises StepRefused where no failure has
    been locked, and nothing is asked of what passes (``passing``)."""
    signature = findings.round_signature or findings.signature or passing
    if signature is None:
        raise StepRefused("The model passes here, so there is nothing to search for.", code=10)
    answer = yield from asked(
        Describe(
            model=findings.model,
            sample=findings.sample,
            inputs=findings.inputs,
            reference=ctx.reference if findings.sample else "",
        )
    )
    if not isinstance(answer, Described):
        raise StepRefused(f"The reference run of the whole model did not work: {answer.message}")
    return make_inquiry(ctx, findings, answer.index, signature)


def make_inquiry(
    ctx: StepContext, findings: Findings, index: GraphIndex, signature: Signature
) -> Inquiry:
    """An Inquiry over an index that is known already."""
    watched = tuple(index.by_name[name] for name in signature.outputs if name in index.by_name)
    live = index.ancestors(index.outputs, stop=ranges.decode(findings.patches))
    return Inquiry(
        ctx, findings, index, signature, findings.rule, watched or index.outputs, live=live
    )


def time_run(ask: Inquiry, probe: Measure) -> Sub[float | None]:
    """Seconds of a run of this model on the sample that the search works on; None where times say
    nothing, as the engine only emulates, or where it did not run."""
    if not ask.ctx.can("latency", untold=True):
        return None
    took = yield from asked(
        msgspec.structs.replace(
            probe, samples=(ask.findings.sample,), runs=TIMED, exclusive=True, save=""
        )
    )
    return took.median_seconds or None
