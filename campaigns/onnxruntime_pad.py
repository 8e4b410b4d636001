"""A trained CNN that ONNX Runtime computes wrongly unless Pad_Fusion is off.

    python campaigns/onnxruntime_pad.py        100 fresh inputs, with and without the switch

A Pad with zeros is joined to the MaxPool behind it, which pads with the least value there is. The
model and its pictures are the demo's (wizard/demo/models). Narrowdown is not used here: ONNX Runtime
without optimizers says what is right, and the session with the switch is the line that the program
prints. Fresh inputs: mixtures of two given pictures, one of them mirrored, with noise.
"""

from pathlib import Path

import numpy as np
import onnxruntime

MODELS = Path(__file__).parents[1] / "wizard" / "demo" / "models"
FRESH = 100


def draw(given: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Mixtures of two given pictures each, with noise of a twentieth."""
    random = np.random.default_rng(seed)
    one, other = (given[random.integers(0, len(given), count)] for _ in range(2))
    share = random.uniform(0, 1, (count, 1, 1, 1))
    made = share * one + (1 - share) * other[..., ::-1]
    noise = random.standard_normal(made.shape) * given.std() / 20
    return np.asarray(made + noise, np.float32)


def main() -> None:
    model = str(MODELS / "shapes_cnn.onnx")
    inputs = draw(np.load(MODELS / "shapes_cnn_in.npz")["image"], FRESH, 2026)
    plain, optimized = onnxruntime.SessionOptions(), onnxruntime.SessionOptions()
    plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    optimized.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    want = onnxruntime.InferenceSession(model, plain).run(None, {"image": inputs})[0]
    for off in ("", "Pad_Fusion"):
        if off:  # the line that the program prints
            optimized.add_session_config_entry(
                "optimization.disable_specified_optimizers", "Pad_Fusion"
            )
        session = onnxruntime.InferenceSession(model, optimized)
        got = np.concatenate([session.run(None, {"image": one[None]})[0] for one in inputs])
        wrong = np.abs(got - want).max(axis=1) / np.abs(want).max()
        print(
            f"without {off or 'nothing'}: {(wrong > 1e-3).sum()} of {FRESH} wrong by more than 0.1 %, at most {wrong.max():.3g}"
        )
    print(f"ONNX Runtime {onnxruntime.__version__}")


if __name__ == "__main__":
    main()
