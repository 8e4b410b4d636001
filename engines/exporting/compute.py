"""Computes an ONNX model that was exported from a PyTorch program, or a part of it, as PyTorch does.

    python compute.py PROGRAM.pt2 SHA256 COMPILE MODEL.onnx INPUTS.npz OUTPUTS.npz

It runs in the user's own interpreter: it imports torch, numpy, onnx and the standard library, and
nothing of ours. A program with another ``SHA256`` is not loaded. ``COMPILE`` is ``no`` for eager
PyTorch, ``yes`` for ``torch.compile``, or one of its backends.

The exporter gives an ONNX tensor the name of the program's node that it stands for. So what is fed
and what is asked for mark a part of the program, which is run. What has no node there (one operator
may become several of ONNX) is computed by ONNX's own evaluator, from what PyTorch gave.
"""

import contextlib
import hashlib
import importlib
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any


def compute(
    program: Any, fed: Mapping[str, Any], wanted: Collection[str], mode: str
) -> dict[str, Any]:
    """Tensors by name: those that are wanted and follow from what is ``fed``."""
    import torch

    held = {**program.constants, **program.state_dict}
    specs = program.graph_signature.input_specs
    known = {**{s.arg.name: held[s.target] for s in specs if s.target in held}, **fed}
    todo = [node for node in program.graph.nodes if node.name in wanted]
    needed = set()
    while todo:
        node = todo.pop()
        if node not in needed:
            needed.add(node)
            todo += [] if node.name in known else node.all_input_nodes
    part, made, given = torch.fx.Graph(), dict[Any, Any](), []
    for node in filter(needed.__contains__, program.graph.nodes):
        if node.name in known:
            made[node] = part.placeholder(node.name)
            given.append(known[node.name])
        elif node.op != "placeholder" and all(n in made for n in node.all_input_nodes):
            made[node] = part.node_copy(node, made.__getitem__)
    asked = {node.name: copy for node, copy in made.items() if node.name in wanted}
    part.output(tuple(asked.values()))
    module = torch.fx.GraphModule(program.graph_module, part)
    if mode not in ("no", "yes"):
        with contextlib.suppress(ImportError):
            importlib.import_module(mode)  # which registers itself as a backend
    call = (
        module
        if mode == "no"
        else torch.compile(module, backend="inductor" if mode == "yes" else mode)
    )
    with torch.no_grad():
        values = call(*given)
    pairs = zip(asked, values, strict=True)
    return {name: value for name, value in pairs if isinstance(value, torch.Tensor)}


def fill_in(model: Any, values: dict[str, Any]) -> None:
    """Add what ONNX's evaluator gives for nodes of which PyTorch gave nothing."""
    from onnx import helper, numpy_helper, reference

    values |= {w.name: numpy_helper.to_array(w) for w in model.graph.initializer}
    for node in model.graph.node:
        if any(name and name not in values for name in node.output):
            ends = [
                [helper.make_empty_tensor_value_info(n) for n in dict.fromkeys(names) if n]
                for names in (node.input, node.output)
            ]
            alone = helper.make_model(
                helper.make_graph([node], "one", *ends), opset_imports=model.opset_import
            )
            got = reference.ReferenceEvaluator(alone).run(
                None, {n: values[n] for n in node.input if n}
            )
            values |= dict(zip(filter(None, node.output), got, strict=True)) | values


def main(place: str, digest: str, mode: str, path: str, inputs: str, outputs: str) -> None:
    import numpy as np
    import onnx
    import torch

    if hashlib.sha256(Path(place).read_bytes()).hexdigest() != digest:
        sys.exit(f"'{place}' is not the program that was exported.")
    model, program = onnx.load(path), torch.export.load(place)
    with np.load(inputs, allow_pickle=False) as held:
        feeds = {name: held[name] for name in held.files}
    fed = {name: torch.from_numpy(value.copy()) for name, value in feeds.items()}
    ends = {value.name for value in model.graph.output}
    found = compute(program, fed, ends, mode)
    if ends - found.keys():
        found = compute(program, fed, {n for node in model.graph.node for n in node.output}, mode)
    values = {**feeds, **{name: value.numpy(force=True) for name, value in found.items()}}
    if ends - values.keys():
        fill_in(model, values)
    np.savez(outputs, **{name: values[name] for name in ends})


if __name__ == "__main__":
    main(*sys.argv[1:])
