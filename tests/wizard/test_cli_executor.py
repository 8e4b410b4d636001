"""Where probes run, as the command line takes it."""

import pytest

from wizard import schedulers
from wizard.cli import run
from wizard.cli.arguments import parse
from wizard.exits import BAD_USAGE, MISSING, Refusal


@pytest.mark.parametrize("word", ["local", "tcp://host:8786", "tls://10.0.0.1:8786/", "ucx://host:1"])
def test_a_place_for_probes(word: str) -> None:
    assert parse(["run", "m.onnx", "--executor", word]).executor == word.rstrip("/")


@pytest.mark.parametrize("word", ["host:8786", "http://host:1", "tcp://host", "tcp://:1", "cluster", "tcp://a b:1"])
def test_what_is_no_place_is_said(word: str) -> None:
    with pytest.raises(Refusal) as refused:
        parse(["run", "m.onnx", "--executor", word])
    assert refused.value.code == BAD_USAGE
    assert "neither 'local' nor the address" in str(refused.value)


def test_this_machine_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedulers, "find_spec", lambda name: None)
    assert run.executor(parse(["run", "m.onnx"])) == "local"


def test_a_cluster_needs_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = parse(["resume", "k7f3", "--executor", "tcp://host:8786"])
    monkeypatch.setattr(schedulers, "find_spec", lambda name: None)
    with pytest.raises(Refusal, match="-m pip install distributed") as refused:
        run.executor(arguments)
    assert refused.value.code == MISSING


def test_figures_need_their_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = object()
    assert run.metered(shown, None, "k7f3") is shown
    monkeypatch.setattr(run, "find_spec", lambda name: None)
    with pytest.raises(Refusal, match="-m pip install prometheus-client"):
        run.metered(shown, "file.prom", "k7f3")
