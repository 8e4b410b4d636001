"""The same sessions without a session as the steps' tests have."""

from ..steps.conftest import answers, open_model, tiny, walk_fixture

__all__ = ["answers", "open_model", "tiny", "walk_fixture"]
