"""``narrowdown step NAME``: a flow of one node, generated, so that a step alone is a session like
any other."""

import json
from collections.abc import Mapping
from typing import Any, Final

PREFIX: Final = "step-"

_TITLES: Final = {
    "done": "The step is done",
    "not-reproduced": "No failure was seen",
    "reference-suspect": "The reference itself is suspect",
    "export-at-fault": "The export is at fault",
    "not-determined": "Not determined to this tolerance",
    "refused": "The engine refuses the model",
    "unresolved": "The step came to no answer",
}


def single_flow(step: str, params: Mapping[str, Any] | None = None) -> str:
    """The flow that runs this one step and ends by what it found, as YAML text.

    Its end ``done`` has the verdict ``done`` (exit code 0); the others are those of the step's
    ``ends``. The last answer, taken where the step failed, is ``unresolved``. A step that nobody
    here has (any more) has no ends of its own.
    """
    from narrowdown.engines.steps.registry import STEPS

    ends = STEPS[step].ends if step in STEPS else ()
    answers: dict[str, Any] = {
        f"case-{number}": {
            "text": _TITLES[e.end], "goto": e.end, "when": {e.field: e.value}, "because": "{{ message }}",
        }
        for number, e in enumerate(ends, 1)
    }  # fmt: skip
    # The message is there in every outcome; a step that failed has none.
    answers["done"] = {
        "text": _TITLES["done"], "goto": "done", "when": {"not": {"message": None}}, "because": "{{ message }}",
    }  # fmt: skip
    answers["failed"] = {"text": "The step could not be run to its end", "goto": "unresolved"}
    titled = {
        name: {"title": title, "explain": title + ".", "verdict": name}
        for name, title in _TITLES.items()
    }
    flow = {
        "schema": 1,
        "id": PREFIX + step,
        "title": f"The step {step} alone",
        "start": step,
        "nodes": {
            step: {
                "title": step,
                "explain": f"Runs the step {step} and ends.",
                "step": {"use": step, "with": dict(params or {})},
                "ask": "What did the step find?",
                "answers": answers,
            }
        },
        "ends": {
            name: end
            for name, end in titled.items()
            if name in {a["goto"] for a in answers.values()}
        },
    }
    # JSON is YAML too: nothing that a parameter holds can be misread.
    return json.dumps(flow, indent=2, ensure_ascii=True) + "\n"


def single_question(step: str, verdict: str) -> tuple[str, str]:
    """The id and the text of a flow that asks, as a shipped flow does, the one question that this
    step answers; each answer is an end. ``verdict``: of all ends but those that the flow itself has
    for them. Raises LookupError for a step that neither flow runs."""
    import yaml

    from narrowdown.wizard.flow.load import load

    for name in ("after", "accuracy"):
        flow = yaml.safe_load(load(name).text)
        for id_, node in flow["nodes"].items():
            if node.get("step", {}).get("use") == step:
                return name, json.dumps(_end_there(flow, id_, node, verdict), indent=2) + "\n"
    raise LookupError(step)


def _end_there(
    flow: Mapping[str, Any], id_: str, node: Mapping[str, Any], verdict: str
) -> dict[str, Any]:
    ends, answers = {}, {}
    for answer, told in node["answers"].items():
        goto = told["goto"] if told["goto"] in flow["ends"] else f"{id_}-{answer}"
        asked = {
            "title": f"{node['title']} {told['text']}",
            "explain": "The session that this one goes on from stays as it is.",
            "verdict": "worked-around" if (id_, answer) == ("rewrite", "yes") else verdict,
        }
        ends[goto] = flow["ends"].get(goto, asked)
        answers[answer] = {**told, "goto": goto}
    return {
        **flow,
        "title": node["title"],
        "start": id_,
        "nodes": {id_: {**node, "answers": answers}},
        "ends": ends,
    }
