"""A precision workaround as a script that Polygraphy runs over the network: ``keep_fp32.py``."""

import pprint
from collections.abc import Collection
from importlib.resources import files

from engines.spec import parse
from wizard.bundle.check import ascii_only
from wizard.bundle.runtime import runtime
from wizard.report.document import Workaround

NAME = "keep_fp32.py"


def script(workaround: Workaround | None, version: str) -> str:
    """The script's text; empty where the workaround keeps no layers, or not in an engine that is told by layer: a weakly typed
    one, or the emulation of one. ``version``: of the engine."""
    if workaround is None or workaround.kind != "precision" or not workaround.keep_higher:
        return ""
    engine = parse(workaround.engine)
    told = runtime(engine, version)
    if engine.name != "emulate" and not (engine.name == "tensorrt" and not told.settings["strong"]):
        return ""
    return filled(workaround.keep_higher, engine.get("precision", "fp16"))


def filled(nodes: Collection[str], precision: str) -> str:
    """The text for these nodes."""
    listed = pprint.pformat(sorted({name for name in nodes if name}), width=100)
    text = (files("wizard.bundle") / "keep_fp32.py.txt").read_text(encoding="utf-8")
    return text.replace("#FLAG#", f"--{precision}").replace("#NODES#", f"NODES = set({ascii_only(listed)})")
