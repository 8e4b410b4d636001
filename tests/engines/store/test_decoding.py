"""JSON that somebody else may have written: what is wrong with it is one kind of error."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.store.decoding import decode

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)  # fmt: skip


@given(VALUES)
def test_what_is_read_can_be_written_again(value: Any) -> None:
    """Where msgspec writes no number of more than 64 bits, none is read."""
    text = json.dumps(value).encode()
    found = sentence = None
    try:
        found = decode(text)
    except ValueError as problem:
        sentence = str(problem)
    if sentence is None:
        assert msgspec.json.decode(msgspec.json.encode(found)) == found
    else:
        assert "64 bits" in sentence
        with pytest.raises(OverflowError):
            msgspec.json.encode(msgspec.json.decode(text))


def test_digits_in_a_text_are_no_number() -> None:
    assert decode(b'{"a":"12345678901234567890123"}') == {"a": "12345678901234567890123"}


def test_a_number_is_looked_at_by_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(msgspec.json, "encode", asked.append)
    decode(b'{"a":[999999999999999999,1234567890.123456789012345678,"x"]}')
    assert not asked
    decode(b'{"a":[1000000000000000000]}')
    assert asked
