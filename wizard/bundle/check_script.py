"""Fills in ``check.py``, the case's own check: a readable script of its own with the values of one
case at its top."""

import pprint
import re
from importlib.resources import files
from typing import Any

import msgspec

from narrowdown.engines import outside
from narrowdown.engines.compare.judge import Criterion
from narrowdown.engines.declaration import CheckPart
from narrowdown.engines.discovery import find
from narrowdown.engines.findings import Culprit
from narrowdown.engines.spec import parse
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.words import elide, listing, visible


class Asked(msgspec.Struct, frozen=True):
    """How the failure was judged when it was found."""

    engine: str
    found_with: str  # "ENGINE:option=value 1.31.1 on CPU"
    criterion: Criterion
    looks: int = 1
    check: str = ""
    needs: tuple[str, ...] = ()  # files that the check names, from the user's folder on
    timeout: float = 0.0
    version: str = ""  # of the engine where it was found


def script(culprit: Culprit, asked: Asked) -> str:
    """The text of check.py for one culprit."""
    part, why = engine_part(asked)
    values = [
        ("CASE", visible(listing([elide(name, 60) for name in culprit.case.nodes]))),
        ("ENGINE", asked.engine),
        ("FOUND_WITH", visible(asked.found_with)),
        ("NEEDED", say_needs(asked)),
        *list_judging_values(culprit, asked, part),
    ]
    block = "\n".join(
        f"{name} = {pprint.pformat(value, width=100, sort_dicts=False)}" for name, value in values
    )
    text = (files("narrowdown.wizard.bundle") / "check.py.txt").read_text(encoding="utf-8")
    refusal = f"this check cannot run {asked.engine}, as {why}; commands.sh says what can"
    engine = part.source if part else f"def start():\n    cannot_tell({refusal!a})\n"
    filled = {"#ENGINE#": ascii_only(engine).strip("\n") + "\n", "#VALUES#": ascii_only(block)}
    # In one go: a value that holds such a mark would else have the others in the middle of it.
    return re.sub("|".join(filled), lambda mark: filled[mark[0]], text)


def say_needs(asked: Asked) -> str:
    """What check.py needs, as one installs it; of a check of the user's nobody here knows all."""
    declared = find(parse(asked.engine).name)
    packages = declared.install.removeprefix("pip install ") if declared else ""
    if asked.check or not packages or declared is None or declared.required:
        return "check.py needs numpy and the engine's own package"
    exact = " " not in packages and re.fullmatch(r"[0-9]+(\.[0-9]+)+", asked.version)
    return f"check.py needs: pip install numpy {packages}{f'=={asked.version}' if exact else ''}"


def engine_part(asked: Asked) -> tuple[CheckPart | None, str]:
    """(What check.py takes to run the engine, or None, why it cannot)."""
    if asked.check:
        return None, "an external checker judges the case"
    return outside.check_part(outside.found(parse(asked.engine), asked.version))


def can_check(problem: Problem) -> bool:
    """Whether the check.py of a case of this PROBLEM can run the engine, where its package is."""
    return (
        bool(problem.check)
        or outside.check_part(outside.found(parse(problem.engine)))[0] is not None
    )


def list_judging_values(
    culprit: Culprit, asked: Asked, part: CheckPart | None
) -> list[tuple[str, Any]]:
    """The values that decide the verdict."""
    criterion, signature = asked.criterion, culprit.case.signature
    # A postprocess script may have named outputs that the model does not have.
    signed = [n for n in (signature.outputs if signature else ()) if n in culprit.case.outputs]
    outputs = signed or culprit.case.outputs
    rows: list[tuple[str, Any]] = [
        ("KIND", signature.kind if signature else "accuracy"),
        ("RUNTIME", "command" if asked.check else "engine"),
        ("MODEL", part.model if part else "model.onnx"),
        ("SETTINGS", dict(part.settings) if part else {}),
        ("METRIC", criterion.metric),
        ("LIMITS", {name: limit(criterion, name) for name in outputs}),
        ("LOOKS", max(1, asked.looks)),
        ("FAILED", visible(culprit.case.verified or "?")),
    ]
    if criterion.metric == "elementwise":
        rows += [("ATOL", criterion.atol), ("RTOL", criterion.rtol)]
        rows += [("ATOLS", criterion.atols), ("RTOLS", criterion.rtols)]
    if asked.check:
        rows += [
            ("COMMAND", asked.check),
            ("NEEDS", list(asked.needs)),
            ("PATTERNS", list(criterion.fail_regex)),
            ("CODES", list(criterion.fail_codes)),
            ("IGNORED", list(criterion.ignore_fail_codes)),
            ("TIMEOUT", asked.timeout or 600.0),
        ]
    return rows


def limit(criterion: Criterion, output: str) -> float:
    """The largest badness that passes, on the script's own scale: element-wise no element may be
    over, SQNR is negated."""
    if criterion.metric == "elementwise":
        return 0.0
    value = criterion.tolerances.get(output, criterion.tolerance)
    return -value if criterion.metric == "sqnr_db" else value


def ascii_only(text: str) -> str:
    """Source text in ASCII: a name may hold what an editor or a terminal acts on. Only string
    literals hold others."""
    return "".join(
        char if char.isascii() else char.encode("unicode_escape").decode() for char in text
    )
