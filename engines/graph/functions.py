"""Model-local functions: counted before they are inlined (forty, each of which calls the next one
twice, are 2**40 nodes), then inlined under names that say where each node stood."""

from collections import Counter
from collections.abc import Iterable

from onnx import FunctionProto, GraphProto, ModelProto, NodeProto

from narrowdown.engines.graph import ModelProblem, names, protos, schema, splice

DEEPEST = 100  # functions in one another: ONNX's own checker takes no more

Key = tuple[str, str, str]  # domain, name, overload


def count_expanded_nodes(model: ModelProto) -> int:
    """How many nodes the graph has once every call of a model-local function is replaced by what is
    in it, bodies included; a whole number of any size. Raises ``ModelProblem`` for functions that
    call one another in a circle, or too many in a row."""
    functions = {_function_key(f.domain, f.name, f): f for f in model.functions}
    sizes: dict[Key, int] = {}

    def expand(nodes: Iterable[NodeProto], within: tuple[Key, ...]) -> int:
        counted = Counter(
            _function_key(node.domain, node.op_type, node) for node in names.all_nodes(nodes)
        )
        calls = {key: many for key, many in counted.items() if key in functions}
        for key in calls:
            if key in within:
                raise ModelProblem(
                    f"The model's own function '{key[1]}' calls itself; the model is not valid ONNX."
                )
            if len(within) == DEEPEST:
                raise ModelProblem(
                    f"Of the model's own functions more than {DEEPEST} call one another in a row ('{within[0][1]}' does); "
                    "inline some of them (onnx.inliner) and save the model again."
                )
            if key not in sizes:
                sizes[key] = expand(functions[key].node, (*within, key))
        return counted.total() + sum((sizes[key] - 1) * many for key, many in calls.items())

    return expand(model.graph.node, ())


def inline(model: ModelProto) -> int:
    """Replace every call of a model-local function, in bodies too, by what is in it: the call
    ``block`` of a function with a node ``mul`` becomes ``block/mul``. Returns how many calls there
    were. Call ``count_expanded_nodes`` first, which refuses functions that call themselves. Raises
    ``ModelProblem`` for a function of another opset, in which an operator that it uses means
    something else."""
    functions = {_function_key(f.domain, f.name, f): f for f in model.functions}
    _join_opsets(model, functions)
    calls = _inline_graph(model.graph, functions, names.Fresh(names.used(model.graph)))
    del model.functions[:]
    return calls


def _inline_graph(
    graph: GraphProto, functions: dict[Key, FunctionProto], fresh: names.Fresh
) -> int:
    calls = 0
    nodes: list[NodeProto] = []
    for i, node in enumerate(graph.node):
        many, made = _inline_node(node, i, functions, fresh)
        calls += many
        nodes += made
    if calls:
        protos.refill(graph.node, nodes)
    return calls


def _inline_node(
    node: NodeProto, position: int, functions: dict[Key, FunctionProto], fresh: names.Fresh
) -> tuple[int, list[NodeProto]]:
    """(calls that were inlined, the nodes in the place of this one)."""
    function = functions.get(_function_key(node.domain, node.op_type, node))
    if function is None:
        return sum(_inline_graph(body, functions, fresh) for body in names.bodies(node)), [node]
    calls, made = 1, []
    for i, child in enumerate(expand_call(node, position, function, fresh)):
        many, inner_nodes = _inline_node(child, i, functions, fresh)
        calls += many
        made += inner_nodes
    return calls, made


def expand_call(
    node: NodeProto, position: int, function: FunctionProto, fresh: names.Fresh
) -> list[NodeProto]:
    """The nodes of the function, in the place of a node that calls it."""
    prefix = node.name or f"{node.op_type}_{position}"
    given = list(node.input) + [""] * (len(function.input) - len(node.input))
    mapping = dict(zip(function.input, given, strict=False))
    handed: list[tuple[str, str]] = []
    for inner, outer in zip(function.output, node.output, strict=False):
        if not outer:
            continue
        if inner in mapping:  # an input handed on, or one value under two names
            handed.append((inner, outer))
        else:
            mapping[inner] = outer
    attributes = {a.name: a for a in (*function.attribute_proto, *node.attribute)}
    body = splice.copy_nodes(function.node, prefix, mapping, fresh, attributes)
    return body + [splice.identity_node(mapping[inner], outer, prefix) for inner, outer in handed]


def _join_opsets(model: ModelProto, functions: dict[Key, FunctionProto]) -> None:
    """Let the model import what only its functions do. Raises ``ModelProblem`` for a function that
    cannot stand in the model's own opsets."""
    known = schema.opsets(model)
    for function in functions.values():
        versions = schema.opsets(function)
        for domain, version in versions.items():
            if domain not in known:
                model.opset_import.add(domain=domain, version=version)
                known[domain] = version
        for node in names.all_nodes(function.node):
            ours, theirs = (of.get(schema.domain_of(node), 0) for of in (known, versions))
            own = _function_key(node.domain, node.op_type, node) in functions
            if theirs in (0, ours) or own or schema.same_operator(node, ours, theirs):
                continue
            raise ModelProblem(
                f"The model's own function '{function.name}' is of opset {theirs} and the model of {ours}, in which "
                f"{node.op_type} means something else; export the model with one opset."
            )


def _function_key(domain: str, name: str, holder: FunctionProto | NodeProto) -> Key:
    return "" if domain == "ai.onnx" else domain, name, getattr(holder, "overload", "")
