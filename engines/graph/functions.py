"""Model-local functions, counted before anybody inlines them: forty, each of which calls the next one twice, are 2**40 nodes."""

from collections import Counter
from collections.abc import Iterable, Iterator

from onnx import FunctionProto, ModelProto, NodeProto

from engines.graph import names
from engines.graph.model_problem import ModelProblem

DEEPEST = 100  # functions in one another: ONNX's own checker takes no more

Key = tuple[str, str, str]  # domain, name, overload


def expanded(model: ModelProto) -> int:
    """How many nodes the graph has once every call of a model-local function is replaced by what is in it, bodies included; a
    whole number of any size. Raises ``ModelProblem`` for functions that call one another in a circle, or too many in a row."""
    functions = {_key(f.domain, f.name, f): f for f in model.functions}
    sizes: dict[Key, int] = {}
    depths: dict[Key, int] = {}
    calls = {key: Counter(_called(f.node, functions)) for key, f in functions.items()}
    for first in functions:
        path: dict[Key, Iterator[Key]] = {} if first in sizes else {first: iter(calls[first])}
        while path:
            here = next(reversed(path))
            inner = next(path[here], None)
            if inner is None:
                sizes[here] = _size(functions[here].node, calls[here], sizes)
                depths[here] = 1 + max((depths[key] for key in calls[here]), default=0)
                if depths[here] > DEEPEST:
                    raise ModelProblem(
                        f"Of the model's own functions more than {DEEPEST} call one another in a row ('{here[1]}' does); "
                        "inline some of them (onnx.inliner) and save the model again."
                    )
                path.popitem()
            elif inner in path:
                raise ModelProblem(f"The model's own function '{inner[1]}' calls itself; the model is not valid ONNX.")
            elif inner not in sizes:
                path[inner] = iter(calls[inner])
    return _size(model.graph.node, Counter(_called(model.graph.node, functions)), sizes)


def _size(nodes: Iterable[NodeProto], calls: Counter[Key], sizes: dict[Key, int]) -> int:
    return sum(1 for _ in _all(nodes)) + sum((sizes[key] - 1) * many for key, many in calls.items())


def _called(nodes: Iterable[NodeProto], functions: dict[Key, FunctionProto]) -> Iterator[Key]:
    """The function that each node calls, for those that call one."""
    if functions:
        yield from (key for node in _all(nodes) if (key := _key(node.domain, node.op_type, node)) in functions)


def _all(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """The nodes and those of their bodies."""
    for node in nodes:
        yield node
        for body in names.bodies(node):
            yield from _all(body.node)


def _key(domain: str, name: str, holder: FunctionProto | NodeProto) -> Key:
    return "" if domain == "ai.onnx" else domain, name, getattr(holder, "overload", "")
