"""Stands in for Torch-TensorRT, which needs TensorRT's libraries: a backend of ``torch.compile`` by that
name, which computes GELU by a sigmoid. It says nothing of the real one."""

from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo import register_backend


@register_backend(name="torch_tensorrt")
def compile_wrongly(graph: torch.fx.GraphModule, _: list[Any]) -> Callable[..., Any]:
    for node in graph.graph.nodes:
        if "gelu" in str(node.target):
            node.target = lambda x, **_: x * torch.sigmoid(1.702 * x)
            node.op = "call_function"
    graph.recompile()
    return graph.forward
