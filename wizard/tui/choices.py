"""What Setup's pickers offer for engine, reference, tolerance and flow. From the engines'
declarations and the installed flow files; imports no engine."""

import contextlib
import functools

from narrowdown.engines import discovery
from narrowdown.engines.compare.judge import METRICS
from narrowdown.engines.declaration import Declaration
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
    """Every engine with the precisions that it declares; those that are not installed come last and
    say what brings them."""
    found, missing = [], []
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
        found += [Entry(f"{name}:{key}={value}", f"{name}:{key}={value}", "", f"{declared.summary} {help_}")
                  for key, help_, values in _variants(declared, reference) for value in values]  # fmt: skip
    return [*found, *missing]


def _variants(declared: Declaration, reference: bool) -> list[tuple[str, str, tuple[str, ...]]]:
    """(option, its help, its values) worth a line of their own: precision, and how much is
    optimized."""
    wanted = ("precision",) if reference else ("precision", "optimization")
    return [
        (
            option.name,
            option.help,
            tuple(v for v in option.choices if v != option.default or v == "fp16"),
        )
        for option in declared.options
        if option.name in wanted and option.choices
    ]


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
