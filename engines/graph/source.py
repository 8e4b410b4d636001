"""Where a node comes from in the program that was exported: ``models/vit.py:212``, as torch's
exporter writes it."""

import re
from typing import Any

from onnx import NodeProto

# The key under which torch.onnx's dynamo exporter keeps the frames of the program, the innermost
# last.
STACK = "pkg.torch.onnx.stack_trace"
# Frames of the framework say nothing of the user's model.
_FRAMEWORK = re.compile(r"(^|[/\\])(site-packages|dist-packages|torch)[/\\]")
_FRAME = re.compile(r'File "([^"\n]+)", line (\d+)')


def find_source(node: NodeProto) -> str:
    """File and line of the innermost frame of the user's own; "" where the exporter wrote none."""
    stack: Any = next((p.value for p in node.metadata_props if p.key == STACK), "")
    if isinstance(stack, bytes):  # paths in another encoding than UTF-8
        stack = stack.decode("utf-8", "replace")
    frames: list[tuple[str, str]] = _FRAME.findall(stack)
    own = [frame for frame in frames if not _FRAMEWORK.search(frame[0])] or frames
    if not own:
        return ""
    path, line = own[-1]
    # The file and its folder name it; what lies above is the exporting machine's.
    tail = "/".join(re.split(r"[/\\]", path)[-2:])
    return f"{tail.lstrip('/')}:{line}"
