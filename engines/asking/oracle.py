"""The oracle: what a search asks, with every mode of asking wrapped around the engine.

A search knows a graph, a failure and ``ask``. Whether the fault comes and goes, is judged by an
external program, refuses to build, or has earlier culprits beside it is a layer's business
(``engines.asking.layers``), so that n searches and m modes are n + m pieces.
"""

import itertools
from collections.abc import Callable
from functools import partial

import msgspec

from narrowdown.engines.asking import Answer, Ask, Fed, Note, Question, StepContext, Sub
from narrowdown.engines.asking.inquiry import Inquiry, open_inquiry
from narrowdown.engines.asking.layers.checker import ask_checker
from narrowdown.engines.asking.layers.engine import ask_engine
from narrowdown.engines.asking.layers.intermittent import build_afresh, run_repeatedly
from narrowdown.engines.asking.layers.kernels import choose_kernels, force_tactics
from narrowdown.engines.asking.layers.patched_culprits import cure_earlier
from narrowdown.engines.asking.layers.uncompared import compare_nothing, only_build
from narrowdown.engines.asking.near import Near, make_near, make_none
from narrowdown.engines.compare.judge import LARGE, Criterion, Signature
from narrowdown.engines.findings import Findings
from narrowdown.engines.graph import GraphIndex
from narrowdown.engines.probe import AnyProbe, Measurement

FAILURE = Signature(kind="accuracy", sample="", errors={"": 1.0})


class Oracle(msgspec.Struct, frozen=True):
    """``ask``: who answers. ``failure`` of the model, and by which ``criterion``; ``watched``: the
    outputs that fail; ``live``: nodes that reach the model's outputs once earlier culprits are
    cured; ``row``: of a batch that is fed, the one that fails; ``storage``: the type that values are
    held in between nodes. ``cheap``: the same engine where it builds faster and fails alike; None
    where there is none. ``builds``: fresh ones that a verdict takes; ``runs`` of each. ``sample``:
    the one that the search works on; ``feeds``: what decides, the given ones, or the made-up one
    where none were given. ``keeps``: single nodes can be kept in FP32; ``times``: the engine chooses
    kernels by timing; ``patches``: right values can be put into the model. ``near`` makes more
    samples. ``computes``: it runs on this machine; else it only builds.
    """

    index: GraphIndex
    ask: Ask
    live: tuple[int, ...]
    failure: Signature = FAILURE
    criterion: Criterion = Criterion()
    watched: tuple[int, ...] = ()
    row: int = 0
    storage: str = "float32"
    cheap: "Oracle | None" = None
    builds: int = 1
    runs: int = 1
    sample: str = ""
    feeds: tuple[str, ...] = ()
    keeps: bool = True
    times: bool = False
    patches: bool = True
    near: Callable[[int, int, int], Sub[Near]] = make_none
    computes: bool = True

    @property
    def error(self) -> float:
        """e0: the worst badness of the failure, at most LARGE."""
        return min(self.failure.error, LARGE)

    @property
    def refused(self) -> bool:
        """Whether the failure is that the engine does not take the model."""
        return self.failure.kind == "build"

    @property
    def checked(self) -> bool:
        """Whether a checker judges, which is handed parts and tells nothing of samples."""
        return self.failure.kind == "check"

    def list_probes(self, question: Question) -> tuple[AnyProbe, ...]:
        """The first probe that this question is put as; none where it is not put."""
        probes = (probe for probe in self.ask(question) if not isinstance(probe, Note))
        return tuple(itertools.islice(probes, 1))

    def feed(
        self,
        feeds: tuple[str, ...],
        *,
        inputs: str = "",
        runs: int = 0,
        apart: bool = False,
        **rest: object,
    ) -> Sub[Measurement]:
        """The whole model on these samples, in one build, nothing cured of it unless ``rest`` (fields
        of ``Question``) says so; not ok where that cannot be asked."""
        question = Question(fed=Fed(feeds, inputs, runs, apart=apart), uncured=True, build=0)
        answer = yield from self.ask(msgspec.structs.replace(question, **rest))
        return answer.measured


def open_oracle(ctx: StepContext, findings: Findings) -> Sub[tuple[Oracle, Inquiry]]:
    """The oracle of this step, and what is not moved onto it yet. Raises StepRefused where no
    failure has been locked."""
    inquiry = yield from open_inquiry(ctx, findings)
    # What makes constants is not cut through: fed as an input it would not be folded, and an engine
    # joins no layer with it.
    inquiry = msgspec.structs.replace(inquiry, frozen=inquiry.index.from_weights)
    return make_oracle(inquiry), inquiry


def watch_kernels(ctx: StepContext, findings: Findings) -> Oracle:
    """Of the whole model, in builds that tell and take kernels. It needs no graph."""
    inquiry = _ask_without_graph(ctx, findings)
    return Oracle(inquiry.index, choose_kernels(ask_engine(inquiry)), ())


def switch_engine(
    ctx: StepContext, findings: Findings, spell: Callable[[frozenset[str]], str]
) -> Oracle:
    """Of the whole model, on the engine with some of it switched off. ``spell``: its spec without
    these."""
    inquiry = _ask_without_graph(ctx, findings)

    def put(question: Question) -> Sub[Answer]:
        ask = ask_engine(inquiry.of(spell(question.off)))
        if not ctx.can("run", untold=True):
            ask = only_build(ask)
        return build_afresh(run_repeatedly(ask, findings.looks), findings.builds)(question)

    return Oracle(inquiry.index, put, ())


def _ask_without_graph(ctx: StepContext, findings: Findings) -> Inquiry:
    none = GraphIndex(findings.model, (), (), (), ())
    findings = msgspec.structs.replace(findings, patches="")
    return Inquiry(ctx, findings, none, findings.signature or FAILURE, findings.rule, ())


def make_oracle(inquiry: Inquiry) -> Oracle:
    """Every layer that this failure needs, the innermost first."""
    ctx, findings, signature = inquiry.ctx, inquiry.findings, inquiry.signature
    ask: Ask = ask_checker(inquiry) if ctx.check else ask_engine(inquiry)
    # What cannot run here can still refuse, or crash, while it is built.
    refused = signature.kind == "build" or not ctx.can("run", untold=True)
    if refused and ctx.can("build", untold=True):
        ask = only_build(ask)
    ask = run_repeatedly(ask, findings.looks)
    if findings.tactics:
        ask = force_tactics(ask, findings.tactics)
    ask = cure_earlier(ask, findings, inquiry.index, inquiry.everything)
    # What is forced fails steadily.
    ask = build_afresh(ask, 1 if findings.tactics else findings.builds)
    if ctx.check or signature.kind != "accuracy":
        ask = compare_nothing(ask)
    row = signature.sample.partition("/")[2] if "/" not in findings.sample else ""
    twin = findings.cheap if findings.cheap != ctx.engine else ""
    return Oracle(
        inquiry.index,
        ask,
        inquiry.everything,
        signature,
        inquiry.criterion,
        inquiry.watched,
        int(row or 0),
        ctx.storage,
        make_oracle(inquiry.of(twin)) if twin else None,
        findings.builds,
        findings.looks,
        findings.sample,
        tuple(s.id for s in findings.samples),
        ctx.can("keep"),
        ctx.engine_info.gpus > 0,
        # What does not build gives no values.
        not ctx.check and signature.kind != "build",
        partial(make_near, inquiry),
        ctx.can("run", untold=True),
    )
