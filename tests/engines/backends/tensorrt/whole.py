"""TensorRT of any version as an installed package, with a driver and a GPU: for the whole program,
workers and all, as a user of that version meets it. What it computes is the emulation's; what it
can and refuses is the real ones'."""

import json
import shutil
from pathlib import Path
from typing import Any

from tests.engines.workers import driver

from .test_versions import names

HERE = Path(__file__).parent


def install(folder: Path, version: str, **behaves: Any) -> dict[str, str]:
    """Put the package into the folder; the environment in which it is found. ``refuses``: operators
    that its parser refuses; ``wide``: those that a weakly typed build computes in FP32 whatever is
    allowed. ``switches``: name -> operators that are computed in FP32 with this switch of the
    compiler off; ``crashes``: switches without which the builder dies. Needs a C compiler, for the
    driver."""
    package, cuda = folder / "tensorrt", folder / "cuda" / "bindings"
    for made in (package, cuda):
        made.mkdir(parents=True)
    shutil.copy(HERE / "whole_tensorrt.py", package / "__init__.py")
    shutil.copy(HERE / "whole_cuda.py", cuda / "runtime.py")
    (cuda / "__init__.py").touch()
    told = {"version": version, "names": sorted(names(version)), **behaves}
    known = (*behaves.get("switches", ()), *behaves.get("crashes", ()))
    text = b"".join(b"\0-%s=[on|off]\0" % name.encode() for name in known)
    (package / "libnvinfer.so.10").write_bytes(text or b"\0")
    (package / "stand_in.json").write_text(json.dumps(told))
    driver.build(folder, [("NVIDIA H100 80GB HBM3", 9)])
    return {"PYTHONPATH": str(folder), "LD_LIBRARY_PATH": str(folder)}
