"""``issue.md`` and ``README.txt`` of a case: what its finder hands to the engine's maintainers, and
ten lines for whoever opens the folder. Pure; the report is told without folders, users and hosts
already."""

from collections.abc import Mapping

from narrowdown.engines import outside
from narrowdown.engines.compare.say import say_part, wrong_by
from narrowdown.engines.declaration import TRACKER
from narrowdown.engines.discovery import find
from narrowdown.engines.known.lookalike import say_lookalike
from narrowdown.engines.spec import parse
from narrowdown.wizard.bundle.check_script import Asked, say_needs
from narrowdown.wizard.report.document import Culprit, Report
from narrowdown.wizard.report.hand_on import name_addressee
from narrowdown.wizard.report.markdown import code, fenced, literal
from narrowdown.wizard.words import count, listing, show_error, visible

UNKNOWN = "(please fill in)"
EXPORT = "export"  # the cause for which no engine is to blame
# What becomes of a part by its cause, before the engine's name, and how often; what gives no
# outputs is no wrong answer.
_ENDS = {
    "build-failure": ("is refused by", "it was refused"),
    "crash": ("ends the process of", "the process ended"),
}
MINIMAL = ("model.onnx", "engine.onnx", "inputs.npz", "expected.npz", "check.py", "commands.sh")


def issue(report: Report, culprit: Culprit, asked: Asked, commands: str) -> str:
    """A bug report with the fields that the tracker of the engine asks for. ``commands``: the text
    of commands.sh."""
    engine = parse(asked.engine)
    declared = find(engine.name)
    tracker = (declared.tracker if declared else None) or TRACKER
    if culprit.cause == EXPORT:
        tracker = TRACKER
    # Each is one line of ours but for the commands: what a session says of versions and devices,
    # its writer has said.
    slots = {
        slot: text if slot == "steps" else visible(text)
        for slot, text in fill(report, culprit, asked, commands).items()
    }
    run = outside.found(engine, asked.version)
    where = f"{outside.title(run)} {asked.version}".rstrip()
    if outside.declared(run).emulation and (
        precision := engine.get("precision")
    ):  # no engine that anybody else knows of
        where = f"in {precision.upper()}"
    does = _say_does(culprit) if not where.startswith("in ") else "gives wrong results"
    what = " + ".join(culprit.ops[:4])
    title = literal(f"{what} {does} {where} ({culprit.cause.replace('-', ' ')})")
    link = (
        f"<!-- For {tracker.url} ; attach this folder as a zip file. -->\n\n" if tracker.url else ""
    )
    parts = [
        f"{heading}\n\n{slots[slot]}"
        if heading.startswith("#")
        else f"**{heading}**: {slots[slot]}"
        for heading, slot in tracker.fields
    ]
    return f"{link}# {title}\n\n" + "\n\n".join(parts) + "\n"


def fill(report: Report, culprit: Culprit, asked: Asked, commands: str) -> Mapping[str, str]:
    """The text of each slot of a tracker's fields."""
    environment = report.environment
    machine, role = environment.get("machine", {}), environment.get("engine", {})
    versions = environment.get("versions", {})
    reference = environment.get("reference", {})
    lines = [line for line in commands.splitlines() if line and not line.startswith("#!")]
    lines.insert(
        bool(lines), f"# {say_needs(asked)}"
    )  # behind the line that says where to run them
    script = fenced("\n".join(lines), "sh")
    judged, spec = (
        f"{reference.get('name', report.reference)} {reference.get('version', '')}".strip(),
        report.reference,
    )
    if report.reference_replaced:  # what was given computes nothing, or was found wrong
        spec = report.reference_replaced["to"]
        judged = parse(spec).name
    judged, how = literal(judged), f" ({code(f'--reference {spec}')})"
    if culprit.cause == EXPORT:
        judged, how = "eager PyTorch", ", fed with the same values"
    # The known bugs that this culprit looks like, of those that any does.
    alike = [like for like in report.lookalikes if set(like.nodes) & set(culprit.nodes)]
    return {
        "description": (
            f"A part of {count(len(culprit.nodes), 'node')} ({literal(listing(culprit.ops, 6))}), cut out of a model of "
            f"{count(report.nodes_before, 'node')}, {_say_does(culprit)} {literal(asked.found_with)}{_say_emulated(asked)}. "
            + literal(" ".join(filter(None, (culprit.evidence, *map(say_lookalike, alike)))))
        ),
        "expected": (
            f"The outputs in expected.npz, as {judged} gives them{_say_exact(culprit)}{how}."
            f"{_say_allowed(report)}"
        ),
        "actual": _say_actual(report, culprit),
        "version": literal(asked.version) or UNKNOWN,
        "device": literal(str(role.get("device") or UNKNOWN)),
        "driver": f"{UNKNOWN}: nvidia-smi says it",
        "cuda": literal(str(versions.get("cuda-bindings") or f"{UNKNOWN}: nvidia-smi says it")),
        "system": literal(str(machine.get("system") or UNKNOWN)),
        "python": literal(str(machine.get("python") or UNKNOWN)),
        "onnx": literal(str(versions.get("onnx") or UNKNOWN)),
        "options": code(asked.engine),
        "model": f"attached: {', '.join(MINIMAL)}",
        "steps": script,
        "others": f"Yes: {judged} gives the expected outputs{_say_exact(culprit)}.",
        "api": "Python",
        "unknown": UNKNOWN,
    }


def _say_emulated(asked: Asked) -> str:
    """What an emulation is, with a space in front: whoever gets the case has no engine of that
    name."""
    engine = parse(asked.engine)
    if not outside.declared(outside.found(engine)).emulation:
        return ""
    types = {"fp16": "FP16", "bf16": "BF16"}.get(engine.get("precision") or "fp16")
    return f" (ONNX Runtime{f', with every value rounded to {types}' if types else ' with the types of the model'})"


def _say_allowed(report: Report) -> str:
    """How far an output may be off from that, in words, with a space in front; "" where a check of
    the user's says it."""
    if not report.allowed:
        return ""
    limit = show_error(report.tolerance, report.metric)
    how = {
        "rel_l2": f"An output may be wrong by {limit}: the length of the error over that of the expected output (rel_l2).",
        "max_abs": f"No value of an output may be wrong by more than {limit} (max_abs).",
        "elementwise": f"Each value of an output may be wrong by atol + rtol times the expected value: {report.allowed}.",
    }
    return f" {how.get(report.metric, f'Allowed is {report.allowed}.')}"


def _say_exact(culprit: Culprit) -> str:
    """From what the expected outputs come, where that is not what the part is fed; "" else."""
    if not culprit.needs_higher_inputs:
        return ""
    return (
        " from exact inputs; inputs.npz has them rounded, as the engine stores them, and from these nothing gives the expected "
        "outputs: what is wrong here is that the part's inputs were rounded"
    )


def _say_does(culprit: Culprit) -> str:
    return _ENDS.get(culprit.cause, ("gives wrong results with",))[0]


def _say_actual(report: Report, culprit: Culprit) -> str:
    often = f"in {literal(culprit.verified or '?').replace('/', ' of ')} fresh builds"
    if culprit.cause in _ENDS:
        return f"No outputs: {_ENDS[culprit.cause][1]} {often}, as said above."
    return (
        f"The part by itself is {_say_own(report, culprit)}; what it gave is in actual.npz, where that file is here. That makes "
        "the output of the whole model "
        f"{say_part(culprit.effect, report.metric, culprit.effect_places)}. It failed {often}."
    )


def _say_own(report: Report, culprit: Culprit) -> str:
    """How wrong it is as it lies here, which is what check.py prints; then how wrong it was before
    it was made smaller."""
    as_it_stands = say_part(culprit.own, report.metric, culprit.own_places)
    if culprit.made_smaller is None:
        return as_it_stands
    return f"{wrong_by(culprit.made_smaller, report.metric)} ({as_it_stands} before its shapes were made smaller for this folder)"


def readme(culprit: Culprit, asked: Asked, lacking: str = "") -> str:
    """Some ten lines for whoever gets the folder. ``lacking``: why there is no model in it."""
    fed = "model.onnx is the failing part, inputs.npz what it is fed, expected.npz what is right; commands.sh: other tools."
    if culprit.needs_higher_inputs:
        fed = (
            "model.onnx is the failing part; inputs.npz what it is fed, rounded as the engine stores it; expected.npz is what\n"
            "exact inputs give. Nothing gives that from rounded ones: that is the fault. commands.sh: other tools."
        )
    return "\n".join(
        [
            f"{count(len(culprit.nodes), 'node')} of a model: a part that {_say_does(culprit)} "
            f"{visible(asked.found_with)}{_say_emulated(asked)}.",
            "",
            "Run:  python check.py",
            "      exit 1: the fault is still there; exit 0: it is gone; exit 2: that cannot be told here.",
            say_needs(asked),
            "A rel_l2 of 0.5 in what it prints is wrong by 50 %: of this part, not of the model.",
            "",
            lacking or fed,
            f"issue.md is a bug report for {name_addressee(asked.engine, (culprit.cause,))}; report.html says what to do now.",
            f"Named cause: {culprit.cause}.",
            "Read the files before you send them: names of nodes and tensors, weights and inputs are those of the model.",
            "",
        ]
    )
