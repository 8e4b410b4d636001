"""The fewest nodes in higher precision, as the session asks for them: what is known of sets, what is
likely, and what is told of the set that ``engines.search.keep_fewest`` finds."""

from collections.abc import Collection, Mapping, Sequence

import msgspec

from narrowdown.engines.asking import Amount, Count, Note, StepRefused, Sub
from narrowdown.engines.asking.engine_forms import find_emulation
from narrowdown.engines.asking.failure_rate import RUNS, has_threads
from narrowdown.engines.asking.inquiry import Inquiry
from narrowdown.engines.asking.oracle import Oracle, make_oracle
from narrowdown.engines.compare.judge import by_sample, judge_whole, restrict, use_up
from narrowdown.engines.compare.say import say_amount, say_most
from narrowdown.engines.findings import Unseen, Workaround
from narrowdown.engines.graph.quantized import find_layers, find_leavable_layers
from narrowdown.engines.nearest import join_some
from narrowdown.engines.probe import HUGE, Measurement, Score, is_given
from narrowdown.engines.search.cured import is_infinite
from narrowdown.engines.search.keep_fewest import MARGIN, Best, Groups, Hunt, NodeSet, keep_fewest
from narrowdown.engines.search.ranking import LayerRow, rank_layers
from narrowdown.engines.search.remedy import Place, foretell_places, keep_as_workaround
from narrowdown.engines.search.tensor_errors import rank_alone
from narrowdown.engines.search.unseen import (
    Ask,
    Basis,
    Determined,
    Tried,
    add_made,
    count_plain,
    find_scale,
    find_worst,
    join_answers,
    list_failing,
    measure_noise,
    say_tried,
    set_apart,
    tell_apart,
    try_unseen,
)
from narrowdown.engines.search.verified import measure_seconds, say_seconds, try_module, write_out
from narrowdown.engines.search.workaround_facts import find_accused
from narrowdown.engines.spec import unquantized
from narrowdown.engines.switches import set_option


# The budget bounds time: at its end the smallest set so far is given, and said to be no minimum.
# Chosen; ResNet-50 under a tolerance that rounding breaks spends all of it.
class PrecisionParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    budget: Count = 400  # builds
    margin: Amount = 0.0  # tolerance over error that is aimed at; 0: 1.5


class Kept(msgspec.Struct, frozen=True):
    """``outcome`` as in PrecisionOutcome; ``tried``: the set that it is about, as a workaround,
    which it is only where it was ``found``. ``plain``: the error with nothing kept. ``reason``: why
    the set could not be measured."""

    outcome: str
    tried: Workaround
    files: dict[str, str] = {}
    builds: int = 0
    plain: float = 0.0
    reason: str = ""

    @property
    def found(self) -> Workaround | None:
        return self.tried if self.outcome == "found" else None


class Keeping:
    """One search. ``order``: what can be kept, the likeliest first, where somebody knows;
    ``tried``: each set that was tried on samples that it was not made on, with what decided then;
    ``lost``: samples of batches that joined, wrong with everything kept."""

    def __init__(self, ask: Inquiry, params: PrecisionParams, order: NodeSet = ()) -> None:
        self.ask, self.params, self.order = ask, params, order
        self.oracle = make_oracle(ask)
        self.everywhere = self.oracle.feeds
        self.sets = KeptSets(self.oracle, list_keepable(ask), params.margin or MARGIN)
        self.tried: dict[NodeSet, tuple[Tried, frozenset[str]]] = {}
        self.joined = 0
        self.lost: set[str] = set()

    def run(self) -> Sub[Kept]:
        """Nothing kept must fail and everything kept must pass, else there is nothing to search."""
        ask, sets = self.ask, self.sets
        plain: Measurement = yield from sets.measure((), self.everywhere)
        if judge_whole(plain, ask.criterion).passed:
            return self._tell("none-needed", (), plain)
        whole: Measurement = yield from sets.measure(sets.everything, self.everywhere)
        if not judge_whole(whole, ask.criterion).passed:
            return msgspec.structs.replace(
                self._tell("not-enough", sets.everything, whole),
                plain=find_worst(plain, ask.criterion),
            )
        held = set_apart(ask.findings, by_sample(plain))
        sets.seen |= set(by_sample(plain)) - held
        sets.basis = Basis(plain, held, find_scale(plain, ask.criterion))
        likely: NodeSet = yield from self._list_likely()
        # In the order in which they were given: a set of names has another one in each process.
        deciding = [s for s in by_sample(plain) if s in sets.seen]
        # What cures the samples that the culprits were found on cures most.
        hardest = (*(c.case.sample for c in ask.findings.culprits), ask.findings.sample)
        hunt = Hunt(
            sets,
            (yield from allow(sets, deciding)),
            tuple(dict.fromkeys(hardest)),
            self.params.budget,
            self._rank,
        )
        best: Best | None = yield from keep_fewest(hunt, likely, self._try_on)
        if best is None:
            return self._tell("whole", sets.everything, whole)
        return (yield from self._finish(best))

    def _list_likely(self) -> Sub[NodeSet]:
        """The nodes that are accused; where nobody is, what the reference takes beyond the storage
        type. A pair stands for the layers that it serves."""
        ask, can = self.ask, set(self.sets.everything)
        seeds = set(find_accused(ask.findings))
        if seeds and seeds <= can and is_infinite(ask.findings):
            # Whether rounding makes it was asked of no sample that is infinite. Of what is left
            # once that is cured it may.
            alone: Measurement = yield from self.sets.measure(tuple(sorted(seeds)), self.everywhere)
            noise: Mapping[str, float] = yield from measure_noise(
                self.oracle, list_failing(alone, ask.criterion)
            )
            self.sets.basis = msgspec.structs.replace(self.sets.basis, noise=noise)
        if not seeds:
            places: tuple[Place, ...] = yield from foretell_places(self.oracle)
            seeds = {n for p in places for n in p.keep} or {s.node for s in ask.findings.suspects}
            if ask.findings.loop and not seeds:
                seeds = ask.index.list_recurrent(ask.findings.loop.carried)
        for layer in find_layers(ask.index) if len(can) < len(ask.index.nodes) else ():
            if seeds.intersection(layer.around):
                seeds = seeds | {layer.node}
        return tuple(sorted(seeds & can))

    def _rank(self) -> Sub[NodeSet]:
        """What can be kept, what is wrong by the most alone first: of layers by what they lose to
        quantization, of nodes by one build of all side by side, of an emulation of the precision
        where the engine takes seconds to build and the emulation fails as it does."""
        ask, everything = self.ask, self.sets.everything
        if self.order:
            return self.order
        if len(everything) < len(ask.index.nodes) and unquantized(ask.ctx.reference):
            rows: tuple[LayerRow, ...] = yield from rank_layers(self.oracle, find_layers(ask.index))
            return tuple(row.node for row in rows if row.movable)
        emulation = find_emulation(ask.ctx, ask.findings)
        if self.oracle.times and not emulation:
            return everything  # its one build of all would take as long as many of them
        nodes: NodeSet = yield from rank_alone(make_oracle(ask.of(emulation)))
        can = set(everything)
        return tuple(n for n in nodes if n in can)

    def _try_on(self, keep: NodeSet, batch: int) -> Sub[Mapping[str, float]]:
        """A set on what was set apart, and on samples made near the session's. What is wrong there
        joins, as far as everything kept is right on it, with all of its batch that can be told."""
        sets, before = self.sets, frozenset(self.sets.seen)
        given: Measurement = yield from sets.measure(keep, self.everywhere)
        basis = msgspec.structs.replace(sets.basis, held=sets.basis.held - before)
        tried: Tried = yield from try_unseen(
            self.oracle, sets.elsewhere(keep), given, basis, batch, self.joined
        )
        self.tried[keep] = tried, before
        sets.near |= dict.fromkeys(tried.near.feeds, tried.near.inputs)
        fresh = tuple(dict.fromkeys((*tried.failing, *tried.counted)))
        if unquantized(self.ask.ctx.reference):
            # A sample that nobody gave is counted, and adds no layer. Where it did, shapes_cnn with
            # channels scaled apart took 16 layers in place of 4, and 12 in place of 5; of 100 others
            # 2 and 2 failed in place of 5 and 2. What fails is mostly out of the calibrated ranges:
            # of a ViT 15 of 100 failed, with any layer more 14, calibrated on these 100 none.
            fresh = tuple(s for s in fresh if is_given(s))
        more: dict[str, float] = {}
        if tried.failing:
            fresh = yield from self._drop_others(keep, fresh)
            more = yield from allow(sets, fresh)
        if set(more).isdisjoint(tried.failing):
            return {}
        sets.seen |= set(more)
        self.joined += len(set(tried.failing) & set(more))
        self.lost |= set(fresh) - set(more)
        return more

    def _drop_others(self, keep: NodeSet, samples: tuple[str, ...]) -> Sub[tuple[str, ...]]:
        """These without the made ones on which an output fails that fails on no given one: what the
        precision does to that is told, and no node is kept for it."""
        sets, reached = self.sets, self.sets.list_reached()
        feeds = tuple(dict.fromkeys(s.partition("/")[0] for s in samples))
        m: Measurement = yield from sets.measure(keep, feeds)
        other = {
            r.sample
            for r in m.results
            for score in r.outputs
            if score.name not in reached and use_up(score, self.ask.criterion) > 1
        }
        return tuple(s for s in samples if is_given(s) or s not in other)

    def _finish(self, best: Best) -> Sub[Kept]:
        """The set built once more, to be kept, and where threads may race run as often as shows one
        failure in seven; what it costs, and its file."""
        ask, sets, rule = self.ask, self.sets, self.ask.criterion
        (tried, seen), keep = self.tried[best.keep], ask.index.with_copies(best.keep)
        sets.seen = set(seen)
        given: Measurement = yield from self.oracle.feed(
            self.everywhere,
            keep=frozenset(keep),
            runs=max(RUNS, self.oracle.runs) if has_threads(ask.ctx) else 0,
            save="workaround",
        )
        if given.status != "ok":  # what was measured stands, though it was not built once more
            given = yield from sets.measure(best.keep, self.everywhere)
        near: Measurement = yield from sets.measure(best.keep, self._list_near(seen))
        unseen: Unseen = yield from count_plain(self.oracle, tried)
        lost: Measurement = yield from sets.measure(best.keep, self._list_near(self.lost))
        wrong = tell_apart(restrict(lost, self.lost), rule, sets.basis)
        unseen = add_made(unseen, wrong, rule, plain=0)
        kept = self._tell("found", keep, join_answers([given, near]), unseen)
        missed = {*tell_apart(given, rule, sets.basis).missed, *tried.failing}
        cure, files = yield from write_out(ask, kept.tried, sets.basis, tried, len(missed))
        cure = yield from try_module(ask, cure, sets.basis, tried)
        times = yield from measure_seconds(ask, ask.whole(self.everywhere, keep))
        slower = f"; {said}" if (said := say_seconds(*times)) else ""
        cure = msgspec.structs.replace(cure, minimal=best.each, cost=f"{cure.cost}{slower}")
        return msgspec.structs.replace(kept, tried=cure, files=files or kept.files)

    def _list_near(self, samples: Collection[str]) -> tuple[str, ...]:
        """The made feeds that hold these samples, in the order in which they were made."""
        feeds = {s.partition("/")[0] for s in samples}
        return tuple(f for f in self.sets.near if f in feeds)

    def _tell(
        self, outcome: str, keep: NodeSet, m: Measurement, unseen: Unseen | None = None
    ) -> Kept:
        ask, sets = self.ask, self.sets
        told = sets.judged(m)
        n, every = len(by_sample(told.counted)), len(sets.everything)
        rows = told.counted if told.counted.results else m
        error = find_worst(rows, ask.criterion) if rows.results else HUGE
        layers = every < len(ask.index.nodes)
        tried = msgspec.structs.replace(
            keep_as_workaround(ask, keep, n, max(error, unseen.error if unseen else 0.0)),
            samples_ok=n - len(told.missed),
            undetermined=len(told.loose),
            cost=f"{len(keep)} of {every} {'quantized layers in float' if layers else 'nodes in FP32'}",
            layers=layers,
            unseen=unseen,
        )
        return Kept(
            outcome,
            tried,
            dict(m.artifacts),
            sets.spent,
            reason="" if m.status == "ok" else m.message,
        )


def list_keepable(ask: Inquiry) -> tuple[int, ...]:
    """The nodes that can be kept in higher precision here. Raises StepRefused where there are
    none."""
    found = tuple(layer.node for layer in find_leavable_layers(ask.index))
    if make_oracle(ask).keeps and not (found and unquantized(ask.ctx.reference)):
        return tuple(range(len(ask.index.nodes)))
    if not found:
        reason = ask.ctx.engine_info.reason("keep") or "it does not say that it can."
        raise StepRefused(
            f"{ask.ctx.engine} cannot keep single nodes in higher precision: {reason}"
        )
    return found


class KeptSets:
    """What is known of sets of nodes as workarounds, sample by sample. Each sample of each set is
    asked once.

    ``everything`` that can be kept. ``margin``: tolerance over error that is aimed at. ``seen``: the
    samples that decide; none: all of them. ``basis``: what is known of the user's samples. ``near``:
    feed -> digest of the inputs that hold it, of samples that were made near the session's.
    ``spent``: how often a set was asked about.
    """

    def __init__(self, oracle: Oracle, everything: NodeSet, margin: float = 1.0) -> None:
        self.oracle, self.everything, self.margin = oracle, everything, margin
        self.near: dict[str, str] = {}
        self.seen: set[str] = set()
        self.basis = Basis()
        self.timed = oracle.times
        # Layers, where a build takes no seconds: an engine that times its kernels takes them.
        self.singly = len(everything) < len(oracle.index.nodes) and not self.timed
        self.spent = 0
        self._built: NodeSet | None = None
        self._answers: dict[NodeSet, dict[str, Measurement]] = {}  # by what was fed

    def list_near(self, nodes: NodeSet) -> Groups:
        """All nodes, each with those of its kind: these, then what feeds and reads what was listed,
        again and again; then what nothing leads to."""
        index, wide, near = self.oracle.index, set(nodes), dict[NodeSet, None]()
        if not nodes or len(self.everything) < len(index.nodes):
            return ()  # layers of one kind differ in what quantization costs them
        while wide.difference(*near):
            near |= dict.fromkeys(index.kinds[n] for n in sorted(wide))
            wide = index.ring({n for kind in near for n in kind})
        return tuple(near | dict.fromkeys(index.kinds))

    def use(self, keep: NodeSet, samples: Sequence[str]) -> Sub[Mapping[str, float] | None]:
        """What part of what is allowed each of these samples has, the worst of its runs; None where
        the set could not be run. Left out is what nobody can call right or wrong."""
        feeds = dict.fromkeys(s.partition("/")[0] for s in samples)
        m: Measurement = yield from self.measure(keep, tuple(feeds))
        if m.status != "ok" or m.assumed:
            return None
        rule, reached = self.oracle.criterion, self.list_reached()
        told = tell_apart(restrict(m, set(samples)), rule, self.basis, self.margin)

        def use(score: Score) -> float:
            return use_up(score, rule) / (1.0 if score.name in reached else self.margin)

        return {
            s: max((use(score) for r in rows for score in r.outputs), default=0.0)
            for s, rows in by_sample(told.counted).items()
        }

    def list_reached(self) -> frozenset[str]:
        """Outputs that fail on some given sample with nothing kept; where one does by more than the
        margin, those that do."""
        rule, rows = self.oracle.criterion, self.basis.plain.results
        used = [(use_up(s, rule), s.name) for r in rows for s in r.outputs]
        far = frozenset(name for u, name in used if u > self.margin)
        return far or frozenset(name for u, name in used if u > 1)

    def measure(self, keep: NodeSet, feeds: Sequence[str]) -> Sub[Measurement]:
        """The answer on all of these, which are what is fed."""
        keep = self.oracle.index.with_copies(keep)
        known = self._answers.setdefault(keep, {})
        left: dict[str, list[str]] = {}  # by the inputs that hold them
        for feed in feeds:
            if feed not in known:
                left.setdefault(self.near.get(feed, ""), []).append(feed)
        if left:
            yield Note(f"keeping {len(keep)} of {len(self.everything)} in higher precision")
            # What is asked of a set right after it was built costs no other build.
            self.spent += keep != self._built
            self._built = keep
        for inputs, part in left.items():
            m: Measurement = yield from self.elsewhere(keep)(inputs, tuple(part))
            known.update({feed: m if len(part) == 1 else _of_feed(m, feed) for feed in part})
        return join_answers([known[feed] for feed in feeds])

    def judged(self, m: Measurement) -> Determined:
        """Of the given samples those that were not set apart, and those that joined; whatever else
        was fed with them."""
        deciding = self.seen and m.status == "ok" and not m.assumed
        return tell_apart(
            restrict(m, self.seen) if deciding else m, self.oracle.criterion, self.basis
        )

    def elsewhere(self, keep: NodeSet) -> Ask:
        """The question about this set that ``try_unseen`` asks of inputs of its own."""
        kept = frozenset(self.oracle.index.with_copies(keep))
        return lambda inputs, samples: self.oracle.feed(
            samples, inputs=inputs, keep=kept, build=None
        )


def _of_feed(m: Measurement, fed: str) -> Measurement:
    """The part of an answer that is about what was fed under this name."""
    if m.status != "ok" or m.assumed:
        return m
    own = {s for s in by_sample(m) if s == fed or s.startswith(f"{fed}/")}
    return msgspec.structs.replace(
        restrict(m, own), run_seconds=m.run_seconds * len(own) / max(1, len(m.results))
    )


def allow(sets: KeptSets, samples: Sequence[str]) -> Sub[dict[str, float]]:
    """What each of these samples may use up, as far as it is right with everything kept."""
    used = yield from sets.use(sets.everything, samples)
    tight = 1 / sets.margin
    known = used or {}
    # In their own order, which says what is asked about first.
    return {s: tight if known[s] <= tight else 1.0 for s in samples if known.get(s, 2.0) <= 1}


def say_kept(ask: Inquiry, kept: Kept) -> str:
    """What the search for nodes to keep came to, in sentences."""
    cure, metric = kept.tried, ask.criterion.metric
    if kept.outcome == "none-needed":
        return "Nothing needs higher precision: the model passes as it is."
    if kept.outcome == "not-enough" and kept.reason:
        return f"With everything in FP32 the model did not run, so precision cannot be judged: {kept.reason}"
    if kept.outcome == "not-enough":
        before, after, allowed = (
            say_amount(error, metric) for error in (kept.plain, cure.error, ask.criterion.tolerance)
        )
        # On an H100 basic_pitch with everything in FP32 is wrong by 0.02 % or 1.23 %, as TensorRT's
        # timing decides about TF32.
        exact = set_option(ask.ctx.engine, ask.ctx.engine_info, lambda option: option.exact)
        anew = f" Layers in FP32 may compute in less here: try again with --engine {exact}."
        return (
            f"With everything in FP32 the error is {after} in place of {before}, and {allowed} is allowed: precision alone "
            f"does not make it right.{anew if exact else ''}"
        )
    if kept.outcome == "whole":
        return (
            f"It passes with all of the {len(cure.keep_names)} nodes in FP32, and with no smaller set that was tried: that "
            "is the model in FP32, and no workaround."
        )
    return (
        f"Keeping {cure.cost.partition(';')[0]}: {say_tried(cure)}. With it {say_most(cure.error, ask.criterion)}. "
        f"Kept: {join_some(cure.keep_names)}."
    )
