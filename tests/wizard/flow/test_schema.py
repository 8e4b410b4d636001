"""The schema in flows/ is the one that the structs give."""

import json

from wizard.flow.schema import committed, generate


def test_the_committed_schema_has_not_drifted() -> None:
    assert committed() == generate(), "python -m wizard.flow.schema rewrites it"


def test_the_schema_names_what_a_flow_needs() -> None:
    schema = json.loads(generate())
    flow = schema["$defs"]["Flow"]
    assert set(flow["required"]) == {"schema", "id", "title", "start", "nodes", "ends"}
    assert schema["$defs"]["StepUse"]["properties"].keys() == {"use", "with"}
    assert schema["$defs"]["Answer"]["additionalProperties"] is False
