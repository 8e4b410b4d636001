"""The case by hand: check.py, the commands of other tools that the engine's declaration gives,
narrowdown itself. Text only; every value is quoted for the shell."""

import math
import shlex

from narrowdown.engines import outside
from narrowdown.engines.compare.judge import Criterion, for_parts
from narrowdown.engines.declaration import Found
from narrowdown.engines.spec import EngineSpec


def commands(
    engine: EngineSpec, criterion: Criterion, inputs: "tuple[str, ...]", version: str = "", looks: int = 1,
    *, rounded: bool = False,
) -> list[str]:  # fmt: skip
    """Shell lines to run inside the case's folder, for the case's engine. ``inputs`` are the names
    of the case's inputs, ``version`` is the engine's where the case was found, ``looks`` how often
    check.py looks: once where it always fails. ``rounded``: the case is fed what the engine stores,
    and right is what comes of exact inputs, which nothing gives from these.

    Polygraphy compares element by element; ``tolerances`` says what stands in for the metric.
    """
    atol, rtol = tolerances(criterion)
    compare = (
        f"--load-inputs inputs.json --load-outputs expected.json --atol {atol:g} --rtol {rtol:g}"
    )
    chosen = outside.found(engine, version)
    part, why = outside.check_part(chosen)
    own = ["# the check that comes with the case: exit 1 while the fault lasts", "python check.py"]
    right = [
        "# the right values: ONNX Runtime gives them",
        f"polygraphy run model.onnx --onnxrt {compare}",
    ]
    return [
        *(own if part else [f"# check.py cannot run this engine: {why}"]),
        *([f"# It comes and goes: check.py looks up to {looks} times, one run of what follows may pass."] if looks > 1 else []),
        "",
        *_write_other_tools(
            chosen,
            outside.lines(chosen, compare, inputs, part),
            [] if rounded else right,
            checkable=part is not None,
        ),
        "",
        "# Narrowdown on the case itself",
        shlex.join(["narrowdown", "run", "model.onnx", "--engine", str(engine), "--inputs", "inputs.json", *limits(criterion)]),
    ]  # fmt: skip


def _write_other_tools(
    chosen: Found, lines: list[str], right: list[str], *, checkable: bool
) -> list[str]:
    """The engine through other tools, as far as they have it; ``right``: what gives the right
    values, added unless the engine is Polygraphy's own runner."""
    if not lines:
        rather = ": check.py does" if checkable else ""
        return [f"# Polygraphy cannot run {outside.title(chosen)}{rather}", *right]
    return lines if not right or any("--onnxrt" in line for line in lines) else [*lines, "", *right]


def limits(criterion: Criterion) -> list[str]:
    """What is allowed, as options of ``narrowdown``."""
    if criterion.metric == "elementwise":
        return ["--atol", f"{criterion.atol:g}", "--rtol", f"{criterion.rtol:g}"]
    metric = [] if criterion.metric == "rel_l2" else ["--metric", criterion.metric]
    return [*metric, "--tolerance", f"{criterion.tolerance:g}"]


def tolerances(criterion: Criterion) -> tuple[float, float]:
    """(atol, rtol) for tools that fail an element over both: none that the criterion fails passes
    there, whatever its magnitude.

    Where no element is off by more than a share of itself, neither is the norm of all. Small
    elements may fail there alone.
    """
    criterion = for_parts(criterion)
    limit = criterion.tolerance
    match criterion.metric:
        case "elementwise":
            return criterion.atol, criterion.rtol
        case "max_abs":
            return limit, 0.0
        case "mismatched":
            return 1e-5, 1e-5  # what counts as a mismatch
        case "cosine":  # nothing comes nearer at this angle than its sine
            return 0.0, math.sqrt(max(0.0, 2 * limit - limit * limit)) if limit < 1 else 1.0
        case "sqnr_db":
            return 0.0, 10 ** (-limit / 20)
        case "ulp":
            return (
                0.0,
                limit * 2.0**-24,
            )  # half a unit of float32 at its least; the units of shorter types are larger
    return 0.0, limit
