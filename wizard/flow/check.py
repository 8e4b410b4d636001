"""Whether a flow holds together: everything that is wrong with it, each with its place in the file."""

import re
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from narrowdown.engines import options
from narrowdown.engines.asking import Count
from narrowdown.engines.nearest import suggestion
from narrowdown.engines.reach import reach
from narrowdown.engines.steps.base import RETIRED, StepSpec
from narrowdown.engines.steps.registry import BROKEN, STEPS
from narrowdown.wizard import BY_VERDICT
from narrowdown.wizard.flow import commands, terms
from narrowdown.wizard.flow.expressions import FILTERS, TemplateProblem, fields
from narrowdown.wizard.flow.load import Loaded
from narrowdown.wizard.flow.model import Answer, FlowNode, detours, targets
from narrowdown.wizard.flow.rules import ORDER

# What an answer may set beside parameters of steps: fields of the PROBLEM, the sample to search on,
# the model to go on with.
SETTINGS: Final = (
    "tolerance", "atol", "rtol", "metric", "fail_regex", "fail_code", "ignore_fail_code", "seed", "sample",
    "working_model",
)  # fmt: skip
_OPERATORS: Final = (*ORDER, "ne", "in")
_GROUPS: Final = ("all", "any")

Where: TypeAlias = tuple[int, int]


class Problem(msgspec.Struct, frozen=True, order=True):
    """One thing that is wrong with a flow, and where. Lines and columns count from 1."""

    line: int
    column: int
    message: str
    suggestion: str = ""


def check(loaded: Loaded, steps: Mapping[str, StepSpec[Any]] = STEPS) -> list[Problem]:
    """Everything that is wrong with the flow, in file order; empty when it holds together."""
    return sorted(set(_Checker(loaded, steps).problems()))


class _Checker:
    def __init__(self, loaded: Loaded, steps: Mapping[str, StepSpec[Any]]) -> None:
        self.flow, self.lines, self.steps = loaded.flow, loaded.lines, steps
        self.places = (*self.flow.nodes, *self.flow.ends)
        self.kinds = {name: outcome_fields(step.params) for name, step in steps.items()}

    def problems(self) -> Iterator[Problem]:
        yield from self._names()
        for name, node in self.flow.nodes.items():
            yield from self._node(name, node)
        for name, end in self.flow.ends.items():
            if end.verdict not in BY_VERDICT:
                hint = suggestion(end.verdict, BY_VERDICT) or f"Known: {', '.join(BY_VERDICT)}."
                yield self._value(
                    f"'{end.verdict}' is not a verdict.", hint, "ends", name, "verdict"
                )
        yield from self._flow_parameters()
        if self.flow.reference:
            try:
                options.check(self.flow.reference)
            except ValueError as problem:
                yield self._value(
                    f"the flow's reference cannot be used: {problem}", "", "reference"
                )
        yield from self._graph()

    def _value(self, message: str, suggestion: str, *path: str | int) -> Problem:
        return Problem(*self.lines.value(*path), message, suggestion)

    def _key(self, message: str, suggestion: str, *path: str | int) -> Problem:
        return Problem(*self.lines.key(*path), message, suggestion)

    # -- names ----------------------------------------------------------------------------------------------------------

    def _names(self) -> Iterator[Problem]:
        flow = self.flow
        if not flow.nodes:
            yield self._key("the flow has no nodes.", "", "nodes")
        elif flow.start not in flow.nodes:
            yield self._value(
                f"the flow starts at '{flow.start}', which is not a node.",
                suggestion(flow.start, flow.nodes),
                "start",
            )
        if not flow.ends:
            yield self._key("the flow has no ends, so no route through it can finish.", "", "ends")
        for kind, names in (("nodes", flow.nodes), ("ends", flow.ends)):
            for name in names:
                if not _identifier(name):
                    yield self._key(
                        f"'{name}' must be lower case letters, digits and hyphens.", "", kind, name
                    )
        for name in flow.ends:
            if name in flow.nodes:
                line = self.lines.key("nodes", name)[0]
                yield self._key(
                    f"'{name}' is also a node (line {line}); a goto could mean either.",
                    "",
                    "ends",
                    name,
                )

    # -- one node -------------------------------------------------------------------------------------------------------

    def _node(self, name: str, node: FlowNode) -> Iterator[Problem]:
        at = ("nodes", name)
        outcome: dict[str, Any] = {}
        if node.step is not None:
            facts = self.steps.get(node.step.use)
            if facts is None:
                near = (
                    suggestion(node.step.use, self.steps)
                    or f"Known: {', '.join(sorted(self.steps))}."
                )
                hint = BROKEN.get(node.step.use) or near
                yield self._value(f"there is no step '{node.step.use}'.", hint, *at, "step", "use")
                return
            outcome = outcome_fields(facts.outcome)
            yield from self._parameters(name, node.step.use, node.step.with_)
        if node.max_visits < 1:
            yield self._value("max_visits must be 1 or more.", "", *at, "max_visits")
        if node.limit and node.limit not in self.flow.ends:
            hint = suggestion(node.limit, self.flow.ends)
            yield self._value(
                f"'{node.limit}' is not an end, and limit must name one.", hint, *at, "limit"
            )
        for word in re.findall("‹([^›]*)›", node.explain):
            term = word.lower().replace(" ", "-")
            if term not in node.terms:
                message = f"‹{word}› is not among the terms of this node."
                yield self._value(message, f"Add {term} to terms.", *at, "explain")
        for position, field in enumerate(node.evidence):
            if field not in outcome:
                yield self._field(field, node, outcome, self.lines.value(*at, "evidence", position))
        known = terms.known()
        for position, term in enumerate(node.terms):
            if term not in known:
                hint = suggestion(term, known)
                yield self._value(
                    f"there is no card terms/{term}.md.", hint, *at, "terms", position
                )
        for key, text in node.commands.items():
            try:
                commands.Tool.parse(key)
            except ValueError as problem:
                yield self._key(str(problem), "", *at, "commands", key)
            yield from self._template(text, commands.FIELDS, *at, "commands", key)
        yield from self._template(node.ask, tuple(outcome), *at, "ask")
        yield from self._answers(name, node, outcome)

    def _answers(self, name: str, node: FlowNode, outcome: Mapping[str, Any]) -> Iterator[Problem]:
        at = ("nodes", name, "answers")
        if not node.answers:
            yield self._key(f"node '{name}' has no answers.", "", *at)
        last = next(reversed(node.answers), "")
        earlier: dict[str, str] = {}
        for id_, answer in node.answers.items():
            here = (*at, id_)
            if not _identifier(id_):
                yield self._key(
                    f"'{id_}' must be lower case letters, digits and hyphens.", "", *here
                )
            if answer.goto not in self.places:
                yield self._goto(answer.goto, *here, "goto")
            # Where no step measures, there is nothing that a rule could ask: the first answer is
            # the one that is proposed.
            if answer.when is None and id_ != last and node.step is not None:
                message = f"'{id_}' has no 'when', so no answer after it can be recommended."
                yield self._key(message, "Give it a rule, or put it last.", *here)
            if answer.when is not None and id_ == last:
                message = "the last answer is what remains when no rule holds, so it has no 'when'."
                yield self._key(
                    message, "Remove this rule, or add an answer after it.", *here, "when"
                )
            if answer.when is not None:
                yield from self._when(answer.when, node, outcome, *here, "when")
                same = earlier.setdefault(repr(answer.when), id_)
                if same != id_:
                    yield self._key(
                        f"'{same}' has the same rule, so '{id_}' is never recommended.",
                        "",
                        *here,
                        "when",
                    )
            for number, detour in enumerate(detours(answer)):
                place = (number,) if isinstance(answer.detour, tuple) else ()
                if detour.goto not in self.places:
                    yield self._goto(detour.goto, *here, "detour", *place, "goto")
                yield from self._when(detour.when, node, outcome, *here, "detour", *place, "when")
            yield from self._settings(answer, here)
            yield from self._template(answer.text, tuple(outcome), *here, "text")
            if answer.because:
                yield from self._template(answer.because, tuple(outcome), *here, "because")

    def _settings(self, answer: Answer, here: tuple[str | int, ...]) -> Iterator[Problem]:
        """Settings are named like what they change: fields of the PROBLEM, or parameters of the
        steps that follow."""
        kinds = {name: hint for hints in self.kinds.values() for name, hint in hints.items()}
        for group, given in (("settings", answer.settings), ("sets", answer.sets)):
            for key, value in given.items():
                if key not in kinds and key not in SETTINGS and key not in RETIRED:
                    hint = (
                        suggestion(key, (*SETTINGS, *kinds))
                        or f"Known: {', '.join(SETTINGS)}, and parameters of steps."
                    )
                    yield self._key(f"there is no setting '{key}'.", hint, *here, group, key)
                elif group == "sets" and key in kinds and (fault := _misfit(value, kinds[key])):
                    yield self._value(f"'{key}' {fault[0]}.", fault[1], *here, group, key)

    def _goto(self, target: str, *path: str | int) -> Problem:
        return self._value(
            f"there is no node or end '{target}'.", suggestion(target, self.places), *path
        )

    def _field(self, field: str, node: FlowNode, outcome: Mapping[str, Any], at: Where) -> Problem:
        if node.step is None:
            return Problem(*at, f"'{field}' is measured by nothing: this node has no step.")
        hint = suggestion(field, outcome) or f"Known: {', '.join(outcome)}."
        return Problem(*at, f"step '{node.step.use}' does not measure '{field}'.", hint)

    def _flow_parameters(self) -> Iterator[Problem]:
        """A parameter of the flow reaches every step that declares one of its name."""
        used = {
            n.step.use
            for n in self.flow.nodes.values()
            if n.step is not None and n.step.use in self.steps
        }
        kinds = {step: self.kinds[step] for step in sorted(used)}
        known = sorted({name for hints in kinds.values() for name in hints})
        for key, value in self.flow.params.items():
            takers = [step for step, hints in kinds.items() if key in hints]
            if not takers and key not in RETIRED:
                yield self._key(
                    f"no step of this flow takes a parameter '{key}'.",
                    suggestion(key, known),
                    "params",
                    key,
                )
            for step in takers:
                if fault := _misfit(value, kinds[step][key]):
                    yield self._value(
                        f"'{key}' of step '{step}' {fault[0]}.", fault[1], "params", key
                    )

    def _parameters(self, name: str, step: str, given: Mapping[str, Any]) -> Iterator[Problem]:
        at = ("nodes", name, "step", "with")
        hints = self.kinds[step]
        for key, value in given.items():
            if key not in hints and key in RETIRED:
                continue
            if key not in hints:
                known = f"It takes {', '.join(hints)}." if hints else "It takes none."
                yield self._key(
                    f"step '{step}' takes no '{key}'.", suggestion(key, hints) or known, *at, key
                )
            elif fault := _misfit(value, hints[key]):
                yield self._value(f"'{key}' of step '{step}' {fault[0]}.", fault[1], *at, key)

    def _when(
        self, when: Any, node: FlowNode, outcome: Mapping[str, Any], *path: str | int
    ) -> Iterator[Problem]:
        if not isinstance(when, Mapping) or not when:
            yield self._value("a rule is a mapping of fields to values.", "", *path)
            return
        for key, value in when.items():
            here = (*path, key)
            if key == "not":
                yield from self._when(value, node, outcome, *here)
            elif key in _GROUPS and (not isinstance(value, list) or not value):
                yield self._value(f"'{key}' takes a list of rules.", "", *here)
            elif key in _GROUPS:
                for position, part in enumerate(value):
                    yield from self._when(part, node, outcome, *here, position)
            elif key not in outcome:
                yield self._field(key, node, outcome, self.lines.key(*here))
            elif isinstance(value, Mapping):
                for operator, operand in value.items():
                    yield from self._operator(
                        key, operator, operand, outcome[key], (*here, operator)
                    )
            elif fault := _misfit(value, outcome[key]):
                yield self._value(f"'{key}' {fault[0]}.", fault[1], *here)

    def _operator(
        self, field: str, operator: str, operand: Any, kind: Any, here: tuple[str | int, ...]
    ) -> Iterator[Problem]:
        if operator not in _OPERATORS:
            # No guess: 'gte' is as near to 'gt' as to 'ge'.
            yield self._key(
                f"there is no comparison '{operator}'.", f"Known: {', '.join(_OPERATORS)}.", *here
            )
        elif operator == "in":
            if not isinstance(operand, list) or not operand:
                yield self._value("'in' takes a list of values.", "", *here)
                return
            for position, item in enumerate(operand):
                if fault := _misfit(item, kind):
                    yield self._value(f"'{field}' {fault[0]}.", fault[1], *here, position)
        elif operator in ORDER and not any(
            k in (int, float) for k in (kind, *typing.get_args(kind))
        ):
            yield self._key(
                f"'{field}' is not a number, so '{operator}' can never hold.", "", *here
            )
        elif fault := _misfit(operand, float if operator in ORDER else kind):
            yield self._value(f"'{field}' {fault[0]}.", fault[1], *here)

    def _template(self, text: str, known: Sequence[str], *path: str | int) -> Iterator[Problem]:
        try:
            fields(text, known)
        except TemplateProblem as problem:
            hint = suggestion(problem.name, (*known, *FILTERS)) if problem.name else ""
            yield self._value(_sentence(str(problem)), hint, *path)

    # -- the graph ------------------------------------------------------------------------------------------------------

    def _graph(self) -> Iterator[Problem]:
        flow = self.flow
        edges = {
            name: [t for a in node.answers.values() for t in targets(a) if t in self.places]
            for name, node in flow.nodes.items()
        }
        if flow.start in flow.nodes:
            bounded = {
                n: [*ts, *([flow.nodes[n].limit] if flow.nodes[n].limit in flow.ends else [])]
                for n, ts in edges.items()
            }
            reached = reach([flow.start], lambda n: bounded.get(n, ()))
            for kind, names in (("nodes", flow.nodes), ("ends", flow.ends)):
                for name in names:
                    if name not in reached:
                        yield self._key(
                            f"no route from '{flow.start}' reaches {kind[:-1]} '{name}'.",
                            "",
                            kind,
                            name,
                        )
        for name, node in flow.nodes.items():
            reached = reach(edges[name], lambda n: edges.get(n, ()))
            if node.answers and flow.ends and not reached & set(flow.ends):
                yield self._key(f"no route from '{name}' reaches an end.", "", "nodes", name)
            if name in reached and not node.limit:
                yield self._key(
                    f"'{name}' can be entered again and names no limit.",
                    "Say max_visits, and with limit the end that is reached after them.",
                    "nodes",
                    name,
                )


def outcome_fields(outcome: type[Any]) -> dict[str, Any]:
    """The fields of an outcome struct and their types."""
    hints = typing.get_type_hints(outcome, include_extras=True)
    return {name: hint for name, hint in hints.items() if name in outcome.__struct_fields__}


def _misfit(value: Any, kind: Any) -> tuple[str, str] | None:
    """(what is wrong, suggestion) where a value is not of a field's type; None where it fits."""
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        if typing.get_origin(kind) is typing.Literal:
            choices = [str(c) for c in typing.get_args(kind)]
            near = suggestion(str(value), choices) or f"It is one of {', '.join(choices)}."
            return f"is never {_show_value(value)}", near
        return f"is {_kind(kind)}, and never {_show_value(value)}", ""
    return None


def _kind(kind: Any) -> str:
    if kind == Count:
        return "a whole number from 0 on"
    names = {
        str: "text",
        int: "a whole number",
        float: "a number",
        bool: "true or false",
        type(None): "null",
    }
    return " or ".join(
        names.get(k, getattr(k, "__name__", str(k))) for k in (typing.get_args(kind) or (kind,))
    )


def _show_value(value: Any) -> str:
    return (
        {True: "true", False: "false", None: "null"}.get(value, f"'{value}'")
        if isinstance(value, bool | None)
        else f"'{value}'"
    )


def _identifier(name: str) -> bool:
    return (
        bool(name)
        and name[0] != "-"
        and all(c.isascii() and (c.isdigit() or c.islower() or c == "-") for c in name)
    )


def _sentence(text: str) -> str:
    return text[:1].lower() + text[1:] if text[:2].istitle() else text
