"""``--answers FILE``: YAML ``node: id``, or ``node: [id, id]``, one a visit. Every scalar is text: ``yes`` is an answer."""

from pathlib import Path
from typing import Any

from wizard.cli.exits import BAD_USAGE, Refusal, nearest
from wizard.flow.model import Flow

ASK = "ask"  # stop here: a person is needed


def read_answers(path: str, flow: Flow) -> dict[str, str | list[str]]:
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
        return {}
    if not isinstance(data, dict):
        raise Refusal(BAD_USAGE, f"The answers file '{path}' is not a mapping of nodes to answers.")
    return {node: _checked(path, node, value, flow) for node, value in data.items()}


def _checked(path: str, node: str, value: Any, flow: Flow) -> str | list[str]:
    if node not in flow.nodes:
        hint = nearest(node, list(flow.nodes))
        raise Refusal(BAD_USAGE, f"{path}: the flow '{flow.id}' has no question '{node}'.{hint}")
    known = [*flow.nodes[node].answers, ASK]
    for answer in value if isinstance(value, list) else [value]:
        if not isinstance(answer, str) or answer not in known:
            hint = nearest(str(answer), known)
            raise Refusal(BAD_USAGE, f"{path}: '{node}' has no answer '{answer}'.{hint} Known: {', '.join(known)}.")
    return list(value) if isinstance(value, list) else str(value)
