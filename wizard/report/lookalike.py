"""Which known bugs a session's failure looks like: what its step ``known`` found, else what the
table says of its culprits."""

from collections.abc import Callable

from narrowdown.engines.findings import Lookalike
from narrowdown.engines.graph.index import GraphIndex
from narrowdown.engines.known.lookalike import list_lookalikes
from narrowdown.engines.known.table import TableProblem, recall
from narrowdown.engines.spec import parse
from narrowdown.engines.views import view_engine
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.session.state import State, find_index


def recognise(
    state: State, problem: Problem, graph: Callable[[str], GraphIndex | None]
) -> tuple[Lookalike, ...]:
    """The bugs, confirmed ones first; none where no culprit was found or its graph is gone.
    ``graph``: the index of a model by its artifact's digest."""
    findings = state.findings
    if findings.lookalikes or not findings.culprits or problem.check:
        return findings.lookalikes
    index = graph(find_index(state, findings.model))
    if index is None:
        return ()
    view = view_engine(state.engines.get(problem.engine, {}))
    try:
        bugs = recall(parse(problem.engine).name, {n.op for n in index.nodes})
    except TableProblem:  # no report fails for it; 'narrowdown known' says it
        return ()
    found = list_lookalikes(findings, index, bugs, version=view.version, precision=view.precision)
    return tuple(
        Lookalike(
            b.id,
            b.thread,
            b.says,
            False,
            b.mended,
            b.cure,
            index.names(nodes),
        )
        for b, nodes in found
    )
