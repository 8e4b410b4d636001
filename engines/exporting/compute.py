"""Computes ONNX models that were exported from a PyTorch program, and parts of them, as PyTorch does.

    python compute.py PROGRAM.pt2 SHA256 COMPILE ASKS ANSWERS
    python compute.py PROGRAM.pt2 SHA256 version

It runs in the user's own interpreter: it imports torch, numpy, onnx and the standard library, and
nothing of ours. A program with another ``SHA256`` is not loaded. ``COMPILE`` is ``no`` for eager
PyTorch, ``yes`` for ``torch.compile``, or one of its backends. Each line of the pipe ``ASKS`` holds
paths with tabs between, and is answered by a line, empty or why it could not be done: ``MODEL.onnx
INPUTS.npz OUTPUTS.npz`` is a run, ``MODEL.onnx PART.pt2`` writes what PyTorch runs for that model.

The exporter gives an ONNX tensor the name of the program's node that it stands for. So what is fed
and what is asked for mark a part of the program, which is run, with the model's weights. What has no
node there (one operator may become several of ONNX) is computed by ONNX's own evaluator, from what
PyTorch gave. A node of ONNX that the exporter has not made so is refused: PyTorch has none like it.
"""

import contextlib
import hashlib
import importlib.metadata
import json
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any


class Program:
    """An exported program, and the nodes of ONNX that were made of it."""

    def __init__(self, place: str, digest: str, mode: str) -> None:
        import onnx
        import torch
        from onnx import numpy_helper

        if hashlib.sha256(Path(place).read_bytes()).hexdigest() != digest:
            sys.exit(f"'{place}' is not the program that was exported.")
        program = torch.export.load(place)
        self.module, self.graph, self.mode = program.graph_module, program.graph, mode
        held = {**program.constants, **program.state_dict}
        made = onnx.load(next(Path(place).parent.glob("*.onnx")))
        self.nodes = {name: node for node in made.graph.node for name in node.output}
        arrays = {w.name: numpy_helper.to_array(w) for w in made.graph.initializer}
        self.contents = {name: digest_array(array) for name, array in arrays.items()}
        # By content, as equal ones are one in the ONNX model, and some are others: a Conv's, into which
        # the exporter has put what follows.
        names = {content: name for name, content in self.contents.items()}
        self.weights = {
            spec.arg.name: (names.get(digest_array(value.double().numpy(force=True)), ""), value)
            for spec in program.graph_signature.input_specs
            if isinstance(value := held.get(spec.target), torch.Tensor)
        }

    def find_fed(self, model: Any) -> dict[str, str]:
        """The tensor that the program makes -> the input of the model that is read in its place.
        Raises ValueError for a node that the exporter has not made."""
        fed = {value.name: value.name for value in model.graph.input}
        for node in model.graph.node:
            own = self.nodes.get(node.output[0], node)
            read = {a: b for a, b in zip(own.input, node.input, strict=False) if a != b}
            if show(own) != show(node) or not set(read.values()) <= fed.keys():
                raise ValueError(f"PyTorch has no '{node.name}' like this: it is not supported.")
            fed |= read
        return fed

    def cut(
        self, fed: Mapping[str, str], weights: Mapping[str, Any], wanted: Collection[str]
    ) -> tuple[Any, list[str], list[str]]:
        """(a module that computes what is wanted and follows from what is fed, the inputs that it
        takes, the names of what it gives)."""
        import torch

        known = {*fed, *weights}
        needed = {node for node in self.graph.nodes if node.name in wanted}
        for node in reversed(self.graph.nodes):
            if node in needed:
                needed |= {n for n in node.all_input_nodes if n.name not in known}
        taken = [n for n in self.graph.nodes if n.name in fed and needed.intersection(n.users)]
        part, root = torch.fx.Graph(), torch.nn.ModuleDict({"own": self.module})
        read = {node: part.placeholder(node.name) for node in taken}
        made = dict[str, Any]()
        for node in self.graph.nodes:
            if node.name in weights:
                root.register_buffer(node.name, weights[node.name])
                read[node] = part.get_attr(node.name)
            follows = node.op != "placeholder" and all(n in read for n in node.all_input_nodes)
            if node in needed and follows:
                made[node.name] = part.node_copy(node, read.__getitem__)
                read.setdefault(node, made[node.name])
        gives = [name for name in made if name in wanted]
        part.output(tuple(made[name] for name in gives))
        return torch.fx.GraphModule(root, part), [fed[node.name] for node in taken], gives


def digest_array(array: Any) -> str:
    """The same for equal values, whatever their type."""
    held = array.astype("float64")
    return f"{held.shape} {hashlib.sha256(held.tobytes()).hexdigest()}"


def show(node: Any) -> tuple[Any, ...]:
    """What a node does, whatever it reads."""
    stated = sorted(each.SerializeToString(deterministic=True) for each in node.attribute)
    return node.op_type, node.domain, len(node.input), stated


class Part:
    """An ONNX model as PyTorch computes it. ``place``: where it lies."""

    def __init__(self, program: Program, place: str) -> None:
        import onnx
        import torch
        from onnx import numpy_helper

        self.model = onnx.load(place)
        self.ends = [value.name for value in self.model.graph.output]
        self.held = {w.name: numpy_helper.to_array(w) for w in self.model.graph.initializer}
        weights = {name: torch.from_numpy(array.copy()) for name, array in self.held.items()}
        taken = {name for name, _ in program.weights.values()}
        for name, array in self.held.items():
            same = program.contents.get(name, "") in ("", digest_array(array))
            if not same and name not in taken:
                raise ValueError(f"PyTorch has no weight '{name}': another one is not supported.")
        for name, (own, value) in program.weights.items():
            weights[name] = weights.get(own, value)
        fed = program.find_fed(self.model)
        self.module, self.takes, self.gives = program.cut(fed, weights, self.ends)
        if set(self.ends) - set(self.gives):
            every = {name for node in self.model.graph.node for name in node.output}
            self.module, self.takes, self.gives = program.cut(fed, weights, every)
        with contextlib.suppress(ImportError):
            importlib.import_module(program.mode)  # which registers itself as a backend
        torch._dynamo.reset()
        backend = "inductor" if program.mode == "yes" else program.mode
        eager = program.mode == "no"
        self.call = self.module if eager else torch.compile(self.module, backend=backend)
        self.given: list[Any] = []  # of the last run

    def run(self, inputs: str, outputs: str) -> None:
        import numpy as np
        import torch

        with np.load(inputs, allow_pickle=False) as held:
            found = {**self.held, **{name: held[name] for name in held.files}}
        self.given = [torch.from_numpy(found[name].copy()) for name in self.takes]
        with torch.no_grad():
            values = zip(self.gives, self.call(*self.given), strict=True)
            found |= {n: v.numpy(force=True) for n, v in values if isinstance(v, torch.Tensor)}
        if set(self.ends) - found.keys():
            fill_in(self.model, found)
        np.savez(outputs, **{name: found[name] for name in self.ends})

    def write(self, path: str) -> None:
        """What was run, as a program by itself, with the names of what it takes and gives."""
        import torch

        names = json.dumps({"takes": self.takes, "gives": self.gives})
        program = torch.export.export(self.module, tuple(self.given))
        for node in program.graph.nodes:
            node.meta.pop("stack_trace", None)  # it names this machine's folders
        torch.export.save(program, path, extra_files={"names": names})


def fill_in(model: Any, values: dict[str, Any]) -> None:
    """Add what ONNX's evaluator gives for nodes of which PyTorch gave nothing."""
    from onnx import helper, reference

    nodes = [n for n in model.graph.node if any(o and o not in values for o in n.output)]
    made = {name for node in nodes for name in node.output if name}
    read = {name for node in nodes for name in node.input if name} - made
    ends = ([helper.make_empty_tensor_value_info(n) for n in names] for names in (read, made))
    rest = helper.make_graph(nodes, "rest", *ends)
    alone = helper.make_model(rest, opset_imports=model.opset_import)
    got = reference.ReferenceEvaluator(alone).run([*made], {name: values[name] for name in read})
    values |= dict(zip(made, got, strict=True)) | values


def main(place: str, digest: str, mode: str, asks: str, answers: str) -> None:
    program, parts = Program(place, digest, mode), dict[str, Part]()
    with Path(asks).open(encoding="utf-8") as lines, Path(answers).open("w") as said:
        for line in lines:
            model, *paths = line.rstrip("\n").split("\t")
            why = ""
            try:
                if model not in parts:
                    parts.clear()  # one is kept, for further runs
                    parts[model] = Part(program, model)
                (parts[model].run if len(paths) == 2 else parts[model].write)(*paths)
            except Exception as error:  # of this model; the next may do
                why = " ".join(f"{type(error).__name__}: {error}".split())
            print(why, file=said, flush=True)


if __name__ == "__main__":
    if sys.argv[-1] == "version":
        print(importlib.metadata.version("torch"))
    else:
        main(*sys.argv[1:])
