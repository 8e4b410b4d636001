"""JSON that somebody else may have written: what cannot be read, or not be reckoned with, is one
kind of error."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from narrowdown.engines.store import decoding
from narrowdown.engines.store.decoding import decode

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)  # fmt: skip


class Row(msgspec.Struct):
    count: int = 0
    facts: dict[str, Any] = {}


def whole_numbers(value: Any) -> list[int]:
    if isinstance(value, list | dict):
        return [
            n
            for inner in (value.values() if isinstance(value, dict) else value)
            for n in whole_numbers(inner)
        ]
    return [value] if isinstance(value, int) else []


@given(VALUES)
def test_what_is_read_can_be_written_again(value: Any) -> None:
    text = json.dumps(value).encode()
    if all(-(2**63) <= number < 2**64 for number in whole_numbers(value)):
        assert msgspec.json.decode(msgspec.json.encode(decode(text))) == value
    else:
        with pytest.raises(ValueError, match="a number of more than 64 bits"):
            decode(text)


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1, 10**30, 10**400])
@pytest.mark.parametrize("text", [
    '{"count": %d}', '{"facts": {"rows": [{"n": %d}]}}', '{"facts": {"n": [0.12345678901234567890123,0.5,%d]}}',
])  # fmt: skip
def test_a_number_that_64_bits_do_not_hold_is_refused(number: int, text: str) -> None:
    for kind in (Row, Any):
        with pytest.raises(ValueError, match="a number of more than 64 bits"):
            decode((text % number).encode(), kind)


def test_digits_in_a_text_or_behind_a_point_are_no_whole_number() -> None:
    facts = {
        "most": 2**64 - 1,
        "least": -(2**63),
        "text": "9" * 400,
        "share": 0.1234567890123456789,
    }
    assert decode(msgspec.json.encode(Row(facts=facts)), Row).facts == facts


def test_numbers_are_looked_at_where_one_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second decoding: not of every line of a journal."""
    asked = []
    monkeypatch.setattr(decoding, "_refuse_long", asked.append)
    decode(b'{"a":[999999999999999999,1234567890.123456789012345678,"x"]}')
    assert not asked
    decode(b'{"a":[0.1234567890123456789,1000.0001438249964849092]}')
    assert not asked
    decode(b'{"a":[1000000000000000000]}')
    assert asked


@pytest.mark.parametrize(
    "text", ["", "{", '{"facts": {"a": ' + "[" * 5000, "9" * 5000, '"\\ud83d"']
)
def test_what_is_no_json_or_too_deep_is_a_value_error(text: str) -> None:
    for kind in (Row, Any):
        with pytest.raises(ValueError, match=r"\w"):
            decode(text.encode(), kind)
