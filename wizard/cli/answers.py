"""``--answers FILE``: YAML ``node: id``, or ``node: [id, id]``, one a visit. Every scalar is text:
``yes`` is an answer.

An answer that carries values is a mapping: ``double-check: [{answer: tolerance, tolerance: 0.05},
stop]``.
"""

from typing import Any, NamedTuple

from narrowdown.engines.nearest import suggestion
from narrowdown.wizard import BadUsage, terminal
from narrowdown.wizard.flow.load import load_texts
from narrowdown.wizard.flow.model import Flow
from narrowdown.wizard.words import visible

ASK = "ask"  # stop here: a person is needed


class Script(NamedTuple):
    """Answers by node, one or a list of one a visit; the values that they carry, by node, for each
    visit."""

    answers: dict[str, str | list[str]]
    settings: dict[str, list[dict[str, Any]]]


def read_answers(path: str | None, flow: Flow) -> Script:
    """The scripted answers, checked against the flow; none without a file. Raises Refusal (exit 2)
    naming what is wrong and the nearest right word."""
    script = Script({}, {})
    if not path:
        return script
    data, lines = load_texts(path)
    for node, value in data.items():
        if node not in flow.nodes:
            at, hint = _at(path, lines.key(node)), suggestion(node, flow.nodes, " ")
            raise BadUsage(
                f"{at}: the flow '{flow.id}' has no question '{visible(str(node))}'.{hint}"
            )
        if value == []:
            at = _at(path, lines.value(node))
            raise BadUsage(
                f"{at}: '{node}' has an empty list of answers; give one a visit, or leave it out."
            )
        several = isinstance(value, list)
        given = [
            _answer(
                _at(path, lines.value(node, i) if several else lines.value(node)), node, item, flow
            )
            for i, item in enumerate(value if several else [value])
        ]
        ids = [answer for answer, _ in given]
        script.answers[node] = ids if isinstance(value, list) else ids[0]
        if any(settings for _, settings in given):
            script.settings[node] = [settings for _, settings in given]
    return script


def _at(path: str, place: tuple[int, int]) -> str:
    return f"{path}:{place[0]}:{place[1]}"


def _answer(path: str, node: str, item: Any, flow: Flow) -> tuple[str, dict[str, Any]]:
    """(id, the values that it carries) of one answer."""
    answer = item.get("answer") if isinstance(item, dict) else item
    known = [*flow.nodes[node].answers, ASK]
    if isinstance(item, dict) and answer is None:
        raise BadUsage(
            f"{path}: an answer with values is written {{answer: ID, NAME: VALUE}}; '{node}' has no 'answer'."
        )
    if not isinstance(answer, str):
        raise BadUsage(f"{path}: an answer of '{node}' is one word: {', '.join(known)}.")
    if answer not in known:
        said = f"has no answer '{visible(str(answer))}'" if answer else "has no answer here"
        raise BadUsage(
            f"{path}: '{node}' {said}.{suggestion(answer, known, ' ')} Known: {', '.join(known)}."
        )
    wanted = flow.nodes[node].answers[answer].settings if answer != ASK else {}
    values = (
        {name: value for name, value in item.items() if name != "answer"}
        if isinstance(item, dict)
        else {}
    )
    for name, value in values.items():
        if name not in wanted:
            takes = f"it takes {', '.join(wanted)}" if wanted else "it takes no values"
            raise BadUsage(
                f"{path}: the answer '{answer}' of '{node}' has no value '{name}': {takes}."
            )
        if not isinstance(value, str):
            raise BadUsage(
                f"{path}: '{name}' of the answer '{answer}' of '{node}' is not one plain value."
            )
    if missing := [name for name in wanted if not values.get(name)]:
        terminal.say(
            f"{path}: the answer '{answer}' of '{node}' says no '{missing[0]}', so it changes nothing; "
            f"write {{answer: {answer}, {missing[0]}: VALUE}}."
        )
    return answer, values
