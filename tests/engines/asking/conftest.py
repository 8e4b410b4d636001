"""The same sessions without a session as the steps' tests have."""

from ..steps.conftest import answers, walk_fixture

__all__ = ["answers", "walk_fixture"]
