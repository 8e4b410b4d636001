"""What is gone of a session and made again, and what is no such thing."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from narrowdown.engines.probe import Inspect, Measure, Sanitize
from narrowdown.engines.store import Store
from narrowdown.wizard.runner import restore
from narrowdown.wizard.runner.drive import index_of
from narrowdown.wizard.session import SessionProblem
from narrowdown.wizard.session.state import State

DIGEST, OTHER = "a" * 64, "b" * 64


@pytest.mark.parametrize("made_of", [DIGEST, OTHER, "../../x"])
def test_a_model_that_is_made_of_itself_or_of_no_model_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made_of: str
) -> None:
    """A forged journal says so: ``after`` went on without an end, and ended with 70."""
    makers = {DIGEST: made_of, OTHER: DIGEST}
    monkeypatch.setattr(restore, "_maker", lambda of, digest, kind: Sanitize(makers[digest]))
    asked: Any = Measure(model=DIGEST, inputs="", samples=(), engine="e", reference="r")
    kept = Store(tmp_path)
    making = restore.make_again_for([asked, Inspect("e")], State(), kept, kept, None)  # type: ignore[arg-type]
    with pytest.raises(SessionProblem, match="which cannot be"):
        asyncio.run(making)


@pytest.mark.parametrize("text", [b"{", b'{"tensors":[[0,0,0,"x"]]}'])
def test_what_is_no_index_of_a_model_is_one_sentence(tmp_path: Path, text: bytes) -> None:
    """``after`` of a forged session ended with 70: the step failed inside narrowdown."""
    digest = Store(tmp_path).put(text)
    with pytest.raises(SessionProblem, match="is no index of a model"):
        index_of(tmp_path, digest)
