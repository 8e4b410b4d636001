"""The newest IR version and opset that the installed ONNX Runtime takes, found by asking it."""

from functools import cache

from onnx import parser

SURE_IR, SURE_OPSET = 8, 17  # every ONNX Runtime that this program installs with takes these


def onnxruntime(ir: int, opset: int) -> tuple[int, int]:
    """(IR version, opset), each as given or, where that is refused, the newest one that is not.
    Nothing is loaded for what is sure. Raises ``ImportError`` where there is no ONNX Runtime."""
    if ir <= SURE_IR and opset <= SURE_OPSET:
        return ir, opset
    newest_ir = next((v for v in range(ir, SURE_IR, -1) if _is_taken(v, SURE_OPSET)), SURE_IR)
    newest_opset = next(
        (v for v in range(opset, SURE_OPSET, -1) if _is_taken(SURE_IR, v)), SURE_OPSET
    )
    return min(ir, newest_ir), min(opset, newest_opset)


@cache
def _is_taken(ir: int, opset: int) -> bool:
    import onnxruntime as ort

    model = parser.parse_model(
        f'<ir_version: {ir}, opset_import: ["": {opset}]> probe (float[1] x) => (float[1] y) {{y = Identity(x)}}'
    )
    quiet = ort.SessionOptions()
    quiet.log_severity_level = 4
    try:
        ort.InferenceSession(model.SerializeToString(), quiet, providers=["CPUExecutionProvider"])
    except Exception:  # whatever it says, it does not take it
        return False
    return True
