"""Where a node comes from in the program that was exported: ``models/vit.py:212``, and the module
``blocks.5.n2`` of the class ``LayerNorm``, as torch's exporter writes it."""

import re
from typing import Any

from onnx import NodeProto

# The key under which torch.onnx's dynamo exporter keeps the frames of the program, the innermost
# last.
STACK = "pkg.torch.onnx.stack_trace"
# The modules that the node lies in, the outermost first, and behind them the name of the operator;
# and their classes.
SCOPES = "pkg.torch.onnx.name_scopes"
CLASSES = "pkg.torch.onnx.class_hierarchy"
_ITEM = re.compile(r"'([^'\n]*)'")
# Frames of the framework say nothing of the user's model.
_FRAMEWORK = re.compile(
    r"(^|[/\\])(site-packages|dist-packages|torch[/\\](nn|fx|export|utils|_\w+))[/\\]"
)
_FRAME = re.compile(r'File "([^"\n]+)", line (\d+)')


def find_source(node: NodeProto) -> str:
    """File and line of the innermost frame of the user's own; "" where the exporter wrote none."""
    stack = _read(node, STACK)
    frames: list[tuple[str, str]] = _FRAME.findall(stack)
    own = [frame for frame in frames if not _FRAMEWORK.search(frame[0])] or frames
    if not own:
        return ""
    path, line = own[-1]
    # The file and its folder name it; what lies above is the exporting machine's.
    tail = "/".join(re.split(r"[/\\]", path)[-2:])
    return f"{tail.lstrip('/')}:{line}"


def find_module(node: NodeProto) -> tuple[str, str]:
    """(path, class) of the innermost module that the node lies in; "" where the exporter wrote none,
    and of the outermost, whose path is empty, the class alone."""
    scopes: list[str] = _ITEM.findall(_read(node, SCOPES))
    classes: list[str] = _ITEM.findall(_read(node, CLASSES))
    if len(scopes) < 2:
        return "", ""
    path = scopes[-2]
    return path, classes[-2].rpartition(".")[2] if len(classes) == len(scopes) else ""


def _read(node: NodeProto, key: str) -> str:
    value: Any = next((p.value for p in node.metadata_props if p.key == key), "")
    # Paths may be in another encoding than UTF-8.
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
