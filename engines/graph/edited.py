"""A model under change: nodes are put in front of others, taken out, and read other tensors."""

from collections.abc import Collection

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from narrowdown.engines.graph import external, names, protos, schema


class Edited:
    """A model that is changed in place: who makes and who reads a tensor, its weights, fresh names.
    The nodes are those that it had until ``finish``."""

    def __init__(self, model: ModelProto, weights_dir: str = "") -> None:
        """``weights_dir``: where its external weights lie; ``""``: their values are not known."""
        self.model, self.graph, self.weights_dir = model, model.graph, weights_dir
        self.nodes = list(model.graph.node)
        self.fresh = names.Fresh(frozenset(names.used(model.graph)))
        self.weights = {t.name: t for t in model.graph.initializer}
        self.makers = {out: node for node in self.nodes for out in node.output if out}
        self.outputs = {o.name for o in model.graph.output}
        self.types = schema.element_types(model)
        self.opset = schema.opsets(model).get("", 0)
        self.before: dict[int, list[NodeProto]] = {}  # id of a node -> new nodes in front of it
        self.gone: set[int] = set()

    def finish(self) -> list[int]:
        """Write the nodes back, new ones in front of those that they are for. Gives the position
        that each had before, -1 of a new one."""
        placed: list[tuple[int, NodeProto]] = []
        for i, node in enumerate(self.nodes):
            placed += [(-1, new) for new in self.before.get(id(node), ())]
            placed += [(i, node)] if id(node) not in self.gone else []
        protos.refill(self.graph.node, [node for _, node in placed])
        return [i for i, _ in placed]

    def maker(self, tensor: str, op: str) -> NodeProto | None:
        """What makes the tensor, where it is such an operator."""
        node = self.makers.get(tensor)
        return node if node is not None and node.op_type == op else None

    def readers(self, tensor: str) -> list[NodeProto]:
        return [n for n in self.nodes if tensor in n.input]

    def reads_alone(self, tensor: str, node: NodeProto) -> bool:
        return tensor not in self.outputs and self.readers(tensor) == [node]

    def value(self, tensor: str) -> np.ndarray | None:
        """A weight's values; None for what is none, and where they are not known."""
        held = self.weights.get(tensor)
        if held is None or (external.is_external(held) and not self.weights_dir):
            return None
        return external.read(held, self.weights_dir)

    def constant(self, hint: str, value: np.ndarray) -> str:
        """A new weight; its name."""
        held = numpy_helper.from_array(np.asarray(value), self.fresh(hint))
        self.graph.initializer.append(held)
        self.weights[held.name] = held
        return str(held.name)

    def insert(
        self, before: NodeProto, op: str, inputs: list[str], hint: str, **attributes: object
    ) -> str:
        """A new node in front of another; the name of its output."""
        out: str = self.fresh(f"{hint}__{op.lower()}")
        made = helper.make_node(op, inputs, [out], name=out, **attributes)
        self.before.setdefault(id(before), []).append(made)
        return out

    def replace_reads(self, old: str, new: str) -> None:
        for node in self.nodes:
            names.rename_reads(node, {old: new})

    def forget(self, tensors: Collection[str]) -> None:
        """What the file says of the types and shapes of these tensors is so no more."""
        told = [v for v in self.graph.value_info if v.name not in tensors]
        protos.refill(self.graph.value_info, told)

    def dtype(self, tensor: str) -> np.dtype:
        return external.dtype_of(self.types.get(tensor, TensorProto.FLOAT))
