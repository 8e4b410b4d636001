"""What an inputs source may name: the loader, the digests and the question whether a script may run
agree on it."""

import pytest
from hypothesis import given, strategies as st

from narrowdown.engines.sources import paths, scripts, split_function


@pytest.mark.parametrize(
    ("source", "path", "function", "may_run"),
    [
        ("in.npz", "in.npz", "", ()),
        ("/a/load.py", "/a/load.py", "", ("/a/load.py",)),
        ("/a/load.py:batches", "/a/load.py", "batches", ("/a/load.py",)),
        ("/a/load.py:no name", "/a/load.py", "no name", ("/a/load.py",)),
        ("/a:b/in.npz", "/a:b/in.npz", "", ()),
        ("x=/a/load.py:f", "x=/a/load.py", "f", ("x=/a/load.py", "/a/load.py")),
        ("x=/a/LOAD.PY", "x=/a/LOAD.PY", "", ("x=/a/LOAD.PY", "/a/LOAD.PY")),
        ("x=y", "x=y", "", ()),
        ("/a=b/load.py", "/a=b/load.py", "", ("/a=b/load.py",)),
    ],
)
def test_a_source_is_read_by_its_text(
    source: str, path: str, function: str, may_run: tuple[str, ...]
) -> None:
    assert split_function(source) == (path, function)
    assert scripts(source) == may_run


@given(st.text(alphabet="ab=:./py", max_size=20))
def test_nothing_that_could_run_is_left_out(source: str) -> None:
    path, function = split_function(source)
    assert source == (f"{path}:{function}" if function or source != path else path)
    assert path in paths(source)
    _, equals, rest = source.partition("=")
    if equals and not source.startswith("/") and split_function(rest)[0].endswith(".py"):
        assert split_function(rest)[0] in scripts(source)
