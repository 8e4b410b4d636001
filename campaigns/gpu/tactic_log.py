"""What the installed TensorRT's verbose log says of the kernels that it times, and how much of it
``timings.heard`` understands.

    python campaigns/gpu/tactic_log.py FOLDER

Writes ``FOLDER/verbose.log`` (every line of one build of four convolutions) and prints one JSON
object: how many lines name a kernel or a key, the first of each kind, the operations that were
heard and, from 10.8 on, how many entries of the editable timing cache were heard of by their key.
"""

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.gpu import models  # as a script it has no package to import from

MARKS = (
    "key: ",
    "Autotuning",
    "Timing Runner",
    "tactic_id",
    "Tactic:",
    "selected tactic",
    "Fastest Tactic",
)


def main(folder: Path) -> dict[str, Any]:
    """The facts, as printed."""
    import tensorrt as trt

    from narrowdown.engines.backends.tensorrt import timings

    lines: list[str] = []

    class Logger(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)

        def log(self, _level: Any, text: str) -> None:
            lines.append(text)

    logger = Logger()
    builder = trt.Builder(logger)
    network = builder.create_network(0)
    parser = trt.OnnxParser(network, logger)
    model, _ = models.convolutions(folder)
    if not parser.parse(model.read_bytes()):
        return {"version": trt.__version__, "problem": str(parser.get_error(0).desc())}
    config = builder.create_builder_config()
    profile = builder.create_optimization_profile()
    shape = (2, 8, 16, 16)
    profile.set_shape("x", shape, shape, shape)
    config.add_optimization_profile(profile)
    if hasattr(trt.BuilderFlag, "FP16"):
        config.set_flag(trt.BuilderFlag.FP16)
    editable = hasattr(trt.BuilderFlag, "EDITABLE_TIMING_CACHE")
    if editable:
        config.set_flag(trt.BuilderFlag.EDITABLE_TIMING_CACHE)
    config.set_timing_cache(config.create_timing_cache(b""), False)
    plan = builder.build_serialized_network(network, config)
    (folder / "verbose.log").write_text("\n".join(lines) + "\n")
    heard = timings.parse_timings(lines)
    keys = [str(key).lower() for key in config.get_timing_cache().queryKeys()] if editable else []
    return {
        "version": trt.__version__,
        "built": plan is not None,
        "lines": len(lines),
        "first": {mark: next((line[:300] for line in lines if mark in line), "") for mark in MARKS},
        "count": {mark: sum(mark in line for line in lines) for mark in MARKS},
        "heard": {key: [op.name, len(op.tried)] for key, op in list(heard.items())[:20]},
        "entries": len(keys),
        "entries_heard": sum(key in heard for key in keys),
    }


if __name__ == "__main__":
    place = Path(sys.argv[1])
    place.mkdir(parents=True, exist_ok=True)
    print(json.dumps(main(place), indent=1))
