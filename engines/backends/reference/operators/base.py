"""What our operators share: they know which version of the operator the model asks for."""

from typing import Any

import numpy as np
from onnx import NodeProto, defs
from onnx.reference.op_run import OpRun

Array = np.ndarray[Any, Any]


class Operator(OpRun):  # type: ignore[misc]
    """Attributes that are not given have the defaults of the model's own operator set: the
    evaluator takes those of the newest (the axis of Softmax was 1 before it was -1). ``since``: the
    version of the operator."""

    op_domain = ""

    def __init__(self, node: NodeProto, run_params: dict[str, Any]) -> None:
        schema = defs.get_schema(
            node.op_type, run_params["opsets"].get("", defs.onnx_opset_version()), ""
        )
        self.since: int = schema.since_version
        super().__init__(node, run_params, schema=schema)
