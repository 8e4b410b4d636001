"""What Setup's pickers offer for engine, reference, tolerance and flow. From the engines'
declarations and the installed flow files; imports no engine."""

import contextlib
import functools

from narrowdown.engines import discovery
from narrowdown.engines.compare.judge import METRICS
from narrowdown.engines.installed import command, importable
from narrowdown.wizard.flow.load import FlowProblem, brought, load, shipped
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.tui.narrative import Entry

FILE = "a file"  # the picked entry that asks for a path

_TOLERANCES = (
    ("", "by precision", "As the engine's precision allows: 0.0001 (FP32), 0.01 (TF32, FP16), 0.05 (BF16), 0.1 (INT8)."),
    ("0.0001", "0.0001", "FP32: rounding in the last digits alone."),
    ("0.001", "0.001", "Stricter than FP16 usually keeps; looser than FP32 needs."),
    ("0.01", "0.01", "FP16 and TF32: three digits."),
    ("0.05", "0.05", "BF16: two digits."),
    ("0.1", "0.1", "INT8."),
)  # fmt: skip


def engines(*, reference: bool = False) -> list[Entry]:
    """Every engine with the precisions that it declares, and how much it optimizes; those that are
    not installed come last and say what brings them."""
    found, missing = [], []
    wanted = ("precision",) if reference else ("precision", "optimization")
    usual, *others = discovery.engines().items()
    # Whoever types fp16 finds first what computes in it unless told otherwise.
    others.sort(
        key=lambda item: (
            not any(o.name == "precision" and o.default == "fp16" for o in item[1].options)
        )
    )
    for name, declared in (usual, *others):
        if declared.hidden or declared.refusal:
            continue
        if declared.package and not importable(declared.package):
            missing.append(
                Entry(
                    name,
                    name,
                    "not installed",
                    f"{declared.summary} {command(declared.install)} brings it.",
                )
            )
            continue
        found.append(Entry(name, name, "", declared.summary))
        found += [
            Entry(
                f"{name}:{o.name}={value}",
                f"{name}:{o.name}={value}",
                "",
                f"{declared.summary} {o.help}",
            )
            for o in declared.options
            if o.name in wanted
            for value in o.choices
            if value != o.default or value == "fp16"
        ]
    return [*found, *missing]


def tolerances() -> list[Entry]:
    """The usual ones, by precision."""
    return [Entry(value, label, "", meaning) for value, label, meaning in _TOLERANCES]


def metrics() -> list[Entry]:
    """All of them, the usual one first."""
    return [
        Entry(name, name, "the usual one" if not number else "", "")
        for number, name in enumerate(METRICS)
    ]


@functools.cache
def flows() -> tuple[Entry, ...]:
    """The flows of this installation, the usual one first, and one's own file. Reads each, so it is
    slow the first time."""
    usual = Problem(model="").flow
    entries = []
    for name in sorted((*shipped(), *brought()), key=lambda name: (name != usual, name)):
        with contextlib.suppress(
            FlowProblem
        ):  # another package's, which 'narrowdown flow list' says
            flow = load(name).flow
            entries.append(Entry(name, name, flow.title, flow.explain.strip()))
    return (
        *entries,
        Entry(
            FILE,
            "a flow file of your own",
            "",
            "A .yaml file in the form that docs/flows.md explains.",
        ),
    )
