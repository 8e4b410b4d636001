"""Open the If, Loop and Scan nodes of a stored model: see in reference runs how each ran, and put
plain nodes in their place."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from narrowdown.engines.array import Array
from narrowdown.engines.data import InputProblem
from narrowdown.engines.graph import ModelProblem, load, names, plain_outputs, unroll
from narrowdown.engines.graph.load import StoredModel
from narrowdown.engines.nearest import NAMED, join_some
from narrowdown.engines.probe import Measurement, Unroll
from narrowdown.engines.store import Store
from narrowdown.engines.workers import captures
from narrowdown.engines.workers.captures import ReferenceFailed

# Nodes that bodies may become, all together: an engine builds so many in seconds, and a search over
# more takes hours.
MOST = 10_000
# The opened model must give what the model gave, by the reference. The same kernels run in the same
# order, so mostly it is the same bits; another plan of an engine's may round otherwise, and
# anything beyond that is another model.
_SAME = 1e-3


@dataclass
class _Opening:
    probe: Unroll
    store: Store
    progress: Callable[[str], None]
    agreed: list[str]
    opened: list[dict[str, Any]] = field(default_factory=list)
    kept: dict[str, str] = field(
        default_factory=dict
    )  # the first output of a node that stays -> why
    nodes: int = 0

    def values(self, model: StoredModel, wanted: Iterable[str], sample: str) -> dict[str, Array]:
        ids = {name: model.index.by_name[name] for name in wanted}
        inputs = (self.probe.base if sample == self.probe.sample else "") or self.probe.inputs
        found = captures.capture_values(
            self.store,
            model,
            list(ids.values()),
            captures.Run(self.probe.reference, inputs, sample),
            self.progress,
        )
        return {name: found[t] for name, t in ids.items()}


def unroll_model(probe: Unroll, store: Store, progress: Callable[[str], None]) -> Measurement:
    """Answer the probe. Raises ``ModelProblem``, ``InputProblem``, ``Damaged``."""
    work = _Opening(probe, store, progress, list(probe.samples))
    model = load.load(store, probe.model)
    before = {t: model.index.tensors[t].name for t in model.index.outputs}
    while True:
        progress("opening If, Loop and Scan")
        try:
            deeper = _open_outermost(work, model, tuple(before.values()))
        except (ReferenceFailed, ModelProblem, InputProblem) as error:
            work.kept[""] = f"What runs inside could not be watched: {error}"
            break
        if deeper is None:
            break
        model = deeper
    facts = {
        "model": model.digest,
        "nodes": len(model.index.nodes),
        "opened": work.opened,
        "samples": work.agreed,
        "kept": [why for why in work.kept.values() if why],
    }
    return Measurement(facts=facts, nodes=len(model.index.nodes))


def _open_outermost(
    work: _Opening, model: StoredModel, outputs: Sequence[str]
) -> StoredModel | None:
    """The model with its outermost bodies opened; None where none is left that can be."""
    graph = model.proto.graph
    for i in unroll.nodes_with_bodies(graph):
        if why := unroll.why_closed(model.proto, i):
            ours = graph.node[i].name.endswith(plain_outputs.FLATTENED)
            work.kept.setdefault(
                _first_output(graph.node[i]),
                "" if ours else f"'{model.engine_names[i]}' {why}, and stays as it is.",
            )
    places = [
        i for i in unroll.nodes_with_bodies(graph) if _first_output(graph.node[i]) not in work.kept
    ]
    if not places:
        return None
    proto, watched = unroll.watch_nodes(model.proto, places)
    seen = load.load(work.store, load.save(work.store, proto))
    runs = _watch_runs(work, seen, watched, work.probe.sample)
    runs = {i: ran for i, ran in runs.items() if _has_room(work, model, i, ran)}
    if not runs:
        return None
    agreed = [
        s for s in work.agreed if s == work.probe.sample or _run_alike(work, seen, watched, s, runs)
    ]
    empty = [
        name for i, ran in runs.items() if ran == 0 and graph.node[i].op_type != "If" for name in graph.node[i].output if name
    ]  # fmt: skip
    opened = unroll.open_nodes(model.proto, runs, work.values(seen, empty, work.probe.sample))
    result = load.load(work.store, load.save(work.store, opened))
    sample = work.probe.sample
    given, now = work.values(model, outputs, sample), work.values(result, outputs, sample)
    if not all(_same_values(given[name], now[name]) for name in given):
        raise ModelProblem("with its bodies opened the model computes something else.")
    work.agreed = agreed
    work.opened += [_describe_opened(work, model, i, ran) for i, ran in runs.items()]
    return result


def _has_room(work: _Opening, model: StoredModel, position: int, ran: int) -> bool:
    """Whether the node may be opened: the nodes that it becomes are counted, or why it stays is
    kept."""
    node = model.proto.graph.node[position]
    bodies = [unroll.body_size(body) for body in names.bodies(node)]
    made = max(bodies) if node.op_type == "If" else bodies[0] * ran
    if work.nodes + made > MOST:
        work.kept[_first_output(node)] = (
            f"'{model.engine_names[position]}' ({node.op_type}) would become {made:,} nodes in {ran:,} iterations, too many to "
            "search; it stays as it is."
        )
        return False
    work.nodes += made
    return True


def _describe_opened(work: _Opening, model: StoredModel, position: int, ran: int) -> dict[str, Any]:
    op_type, sample = model.proto.graph.node[position].op_type, work.probe.sample
    return {
        "node": model.engine_names[position],
        "op": op_type,
        "how": ("else_branch", "then_branch")[ran]
        if op_type == "If"
        else f"{ran} iteration{'' if ran == 1 else 's'}",
        "by": name_deciders(model, position),
        "while": say_what_it_rests_on(
            model, position, ran, lambda t: work.values(model, (t,), sample)[t]
        ),
    }


def _watch_runs(
    work: _Opening, seen: StoredModel, watched: Sequence[unroll.Watched], sample: str
) -> dict[int, int]:
    """How each watched node ran on the sample, by position."""
    values = work.values(seen, {w.name for w in watched}, sample)
    return {
        w.position: unroll.how_it_ran(seen.node_protos[w.position], values[w.name], w.axis)
        for w in watched
    }


def _run_alike(
    work: _Opening,
    seen: StoredModel,
    watched: Sequence[unroll.Watched],
    sample: str,
    runs: Mapping[int, int],
) -> bool:
    """Whether the nodes that are opened ran on this sample as on the chosen one."""
    try:
        there = _watch_runs(work, seen, watched, sample)
    except (ReferenceFailed, InputProblem):
        return False
    return all(there[i] == ran for i, ran in runs.items())


def _same_values(a: Array, b: Array) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype.kind not in "fV" and "float" not in a.dtype.name:
        return bool(np.array_equal(a, b))
    wide, other = a.astype(np.float64), b.astype(np.float64)
    most = float(np.max(np.abs(wide[np.isfinite(wide)]), initial=0.0))
    return bool(np.allclose(other, wide, rtol=0.0, atol=_SAME * most, equal_nan=True))


def _first_output(node: Any) -> str:
    return next((name for name in node.output if name), "")


def name_deciders(model: StoredModel, position: int) -> list[str]:
    """What decides how often or which way a node runs: inputs, constants and nodes by name. Nothing
    for a Scan, whose inputs' length does."""
    node = model.proto.graph.node[position]
    wanted = {"If": node.input[:1], "Loop": node.input[:2]}.get(node.op_type, ())
    return [_name_maker(model, model.index.by_name[name]) for name in wanted if name]


def say_what_it_rests_on(
    model: StoredModel, position: int, ran: int, value: Callable[[str], Array]
) -> list[str]:
    """Phrases that follow "while": what must be so for the node at this position to run as it
    ``ran``; none for an If that always goes the same way. ``value``: the value of a tensor by its
    name, as it was then."""
    node = model.proto.graph.node[position]
    if node.op_type != "If":
        times = f"{ran} iteration{'' if ran == 1 else 's'}"
        return [f"the {node.op_type} '{model.engine_names[position]}' runs {times}"]
    condition = model.index.by_name[node.input[0]]
    inputs = [model.index.tensors[t] for t in _find_inputs(model, condition)]
    # Of what is in a large or a float input no more can be told than which way the If went.
    if any(i.floating or value(i.name).size > NAMED for i in inputs):
        return [f"{_name_maker(model, condition)} gives {_write(value(node.input[0]))}"]
    return [f"'{i.name}' is {_write(value(i.name))}" for i in inputs]


def _name_maker(model: StoredModel, tensor: int) -> str:
    found = model.index.tensors[tensor]
    if maker := model.index.made_by(tensor):
        return f"'{maker.name}' ({maker.op})"
    return f"the {'input' if found.kind == 'input' else 'constant'} '{found.name}'"


def _find_inputs(model: StoredModel, tensor: int) -> list[int]:
    """Inputs of the model that a tensor is computed from, ascending."""
    index = model.index
    read = {tensor}.union(*(index.nodes[n].reads for n in index.ancestors([tensor])))
    return sorted(t for t in read if index.tensors[t].kind == "input")


def _write(value: Array) -> str:
    flat = value.reshape(-1).tolist()
    told = [str(v).lower() if isinstance(v, bool) else str(v) for v in flat]
    return told[0] if len(flat) == 1 else f"[{join_some(told)}]"
