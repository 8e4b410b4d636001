"""The schema in flows/ is the one that the structs give."""

import json
import re

import pytest

from narrowdown.engines.steps.registry import STEPS
from tests.wizard.schemas.generate import generate


def test_the_schema_names_what_a_flow_needs() -> None:
    schema = json.loads(generate("flow"))
    flow = schema["$defs"]["Flow"]
    assert set(flow["required"]) == {"schema", "id", "title", "start", "nodes", "ends"}
    assert schema["$defs"]["StepUse"]["properties"].keys() == {"use", "with"}
    assert schema["$defs"]["Answer"]["additionalProperties"] is False


@pytest.mark.parametrize("name", STEPS)
def test_an_editor_knows_what_each_step_takes(name: str) -> None:
    """``with`` of a step of ours holds its parameters and nothing else; a step that it does not
    know may take anything."""
    defs = json.loads(generate("flow"))["$defs"]
    use = defs["StepUse"]
    assert name in use["properties"]["use"]["examples"]
    assert "enum" not in use["properties"]["use"], "other packages bring steps"
    (rule,) = [r for r in use["allOf"] if r["if"]["properties"]["use"]["const"] == name]
    params = defs[rule["then"]["properties"]["with"]["$ref"].removeprefix("#/$defs/")]
    assert params["additionalProperties"] is False
    assert set(params["properties"]) == set(STEPS[name].params.__struct_fields__)


def test_bytes_may_be_written_with_their_unit() -> None:
    bytes_ = json.loads(generate("flow"))["$defs"]["LayerwiseParams"]["properties"]["batch_bytes"]
    assert bytes_["type"] == ["integer", "string"]
    assert re.search(bytes_["pattern"], "512MiB")
    assert not re.search(bytes_["pattern"], "512 apples")
