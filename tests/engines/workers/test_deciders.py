"""What is said of why an If goes one way and a Loop runs so often."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from narrowdown.engines.graph import load
from narrowdown.engines.store import Store
from narrowdown.engines.workers import unrolling

IF = """
<ir_version: 8, opset_import: ["":17]>
g (GIVEN) => (float[1,4] y) {
  MAKE
  [choice] y = If (w) <
    then_branch = a () => (float[1,4] p) { p = Add (x, x) },
    else_branch = b () => (float[1,4] q) { q = Neg (x) }>
}
"""
LOOP = """
<ir_version: 8, opset_import: ["":17]>
g (float[1,4] x, int64 n) => (float[1,4] y) {
  yes = Constant <value: tensor = bool {1}> ()
  [steps] y = Loop (n, yes, x) <body = b (int64 i, bool c, float[1,4] s) => (bool c2, float[1,4] s2) {
    ENDS
    s2 = Tanh (s)
  }>
}
"""
SCAN = """
<ir_version: 8, opset_import: ["":17]>
g (float[5,2] x) => (float[5,2] y, float[2] total) {
  zero = Constant <value: tensor = float[2] {0, 0}> ()
  [walk] total, y = Scan (zero, x) <num_scan_inputs: int = 1, body = b (float[2] s, float[2] row) => (float[2] s2, float[2] o) {
    s2 = Add (s, row)
    o = Tanh (row)
  }>
}
"""
X = "float[1,4] x"
LIMIT = "l = Constant <value: tensor = int64 {16000}> ()\n"


def rests_on(tmp_path: Path, text: str, ran: int = 1, **values: object) -> Sequence[str]:
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    store = Store(tmp_path / "session")
    model = load.load(store, load.import_model(tmp_path / "m.onnx", store).digest)
    position = next(
        i for i, n in enumerate(model.proto.graph.node) if n.op_type in ("If", "Loop", "Scan")
    )
    return unrolling.say_what_it_rests_on(
        model, position, ran, lambda name: np.asarray(values[name])
    )


@pytest.mark.parametrize(
    ("given", "make", "values", "said"),
    [
        (f"{X}, int64 sr", f"{LIMIT}[is_wide] w = Equal (sr, l)", {"sr": 16000}, ["'sr' is 16000"]),
        (f"{X}, bool loud", "w = Identity (loud)", {"loud": True}, ["'loud' is true"]),
        (f"{X}, int64[2] sr", f"{LIMIT}e = Equal (sr, l)\ni = Cast <to = 7> (e)\n"
         "m = ReduceMin <keepdims = 0> (i)\nw = Cast <to = 9> (m)",
         {"sr": [1, 2]}, ["'sr' is [1, 2]"]),
        (X, f"{LIMIT}s = Size (x)\n[small] w = Greater (s, l)", {"x": np.ones((1, 4)), "w": False},
         ["'small' (Greater) gives false"]),
        # No sentence could be checked that listed what is in a float input, or in a long one.
        (X, "t = ReduceMax <keepdims = 0> (x)\nl = Constant <value_float = 2.0> ()\n[loud] w = Greater (t, l)",
         {"x": np.ones((1, 4)), "w": False}, ["'loud' (Greater) gives false"]),
        (f"{X}, int64[9] many", f"{LIMIT}s = ReduceSum <keepdims = 0> (many)\n[lot] w = Greater (s, l)",
         {"many": np.ones(9), "w": True}, ["'lot' (Greater) gives true"]),
        (X, "w = Constant <value: tensor = bool {1}> ()", {}, []),
    ],
)  # fmt: skip
def test_an_if(
    tmp_path: Path, given: str, make: str, values: dict[str, object], said: list[str]
) -> None:
    assert rests_on(tmp_path, IF.replace("GIVEN", given).replace("MAKE", make), **values) == said


def test_a_loop_is_told_by_how_often_it_ran(tmp_path: Path) -> None:
    ends = "m = ReduceMax <keepdims = 0> (s)\nl = Constant <value_float = 2.0> ()\nc2 = Less (m, l)"
    assert rests_on(tmp_path, LOOP.replace("ENDS", ends), 3, n=9) == [
        "the Loop 'steps' runs 3 iterations"
    ]


def test_a_scan_is_told_by_how_often_it_ran(tmp_path: Path) -> None:
    assert rests_on(tmp_path, SCAN, 5) == ["the Scan 'walk' runs 5 iterations"]
