"""``--answers FILE``: YAML ``node: id``, or ``node: [id, id]``, one a visit. Every scalar is text: ``yes`` is an answer.

An answer that carries values is a mapping: ``double-check: [{answer: tolerance, tolerance: 0.05}, stop]``.
"""

import sys
from pathlib import Path
from typing import Any, NamedTuple

from wizard.cli.exits import BAD_USAGE, Refusal, nearest
from wizard.flow.model import Flow

ASK = "ask"  # stop here: a person is needed


class Script(NamedTuple):
    """Answers by node, one or a list of one a visit; the values that they carry, by node, for each visit."""

    answers: dict[str, str | list[str]]
    settings: dict[str, list[dict[str, Any]]]


def read_answers(path: str, flow: Flow) -> Script:
    """The scripted answers, checked against the flow. Raises Refusal (exit 2) naming what is wrong and the nearest right word."""
    import yaml

    try:
        text = Path(path).expanduser().read_text(encoding="utf-8")
        # Nothing but text, lists and mappings comes out of BaseLoader.
        data: Any = yaml.load(text, Loader=yaml.BaseLoader)  # noqa: S506
    except OSError as problem:
        raise Refusal(BAD_USAGE, f"The answers file '{path}' cannot be read: {problem.strerror}.") from None
    except UnicodeDecodeError:
        raise Refusal(BAD_USAGE, f"The answers file '{path}' is not UTF-8 text.") from None
    except yaml.YAMLError as problem:
        mark = getattr(problem, "problem_mark", None)
        where = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else path
        raise Refusal(
            BAD_USAGE, f"{where}: this is not YAML: {getattr(problem, 'problem', None) or problem}."
        ) from None
    if data is None or data == "":
        return Script({}, {})
    if not isinstance(data, dict):
        raise Refusal(BAD_USAGE, f"The answers file '{path}' is not a mapping of nodes to answers.")
    script = Script({}, {})
    for node, value in data.items():
        _known_node(path, node, flow)
        given = [_answer(path, node, item, flow) for item in (value if isinstance(value, list) else [value])]
        ids = [answer for answer, _ in given]
        script.answers[node] = ids if isinstance(value, list) else ids[0]
        if any(settings for _, settings in given):
            script.settings[node] = [settings for _, settings in given]
    return script


def _known_node(path: str, node: str, flow: Flow) -> None:
    if node not in flow.nodes:
        hint = nearest(node, list(flow.nodes))
        raise Refusal(BAD_USAGE, f"{path}: the flow '{flow.id}' has no question '{node}'.{hint}")


def _answer(path: str, node: str, item: Any, flow: Flow) -> tuple[str, dict[str, Any]]:
    """(id, the values that it carries) of one answer."""
    answer = item.get("answer") if isinstance(item, dict) else item
    known = [*flow.nodes[node].answers, ASK]
    if isinstance(item, dict) and answer is None:
        raise Refusal(
            BAD_USAGE,
            f"{path}: an answer with values is written {{answer: ID, NAME: VALUE}}; '{node}' has no 'answer'.",
        )
    if not isinstance(answer, str) or answer not in known:
        hint = nearest(str(answer), known)
        raise Refusal(BAD_USAGE, f"{path}: '{node}' has no answer '{answer}'.{hint} Known: {', '.join(known)}.")
    wanted = flow.nodes[node].answers[answer].settings if answer != ASK else {}
    values = {name: value for name, value in item.items() if name != "answer"} if isinstance(item, dict) else {}
    for name, value in values.items():
        if name not in wanted:
            takes = f"it takes {', '.join(wanted)}" if wanted else "it takes no values"
            raise Refusal(BAD_USAGE, f"{path}: the answer '{answer}' of '{node}' has no value '{name}': {takes}.")
        if not isinstance(value, str):
            raise Refusal(BAD_USAGE, f"{path}: '{name}' of the answer '{answer}' of '{node}' is not one plain value.")
    if missing := [name for name in wanted if not values.get(name)]:
        print(
            f"narrowdown: {path}: the answer '{answer}' of '{node}' says no '{missing[0]}', so it changes nothing; "
            f"write {{answer: {answer}, {missing[0]}: VALUE}}.",
            file=sys.stderr,
        )
    return answer, values
