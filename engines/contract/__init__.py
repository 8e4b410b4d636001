"""The contract of engines as tests, for whoever writes one; it needs pytest, and nothing of the
program imports it.

from narrowdown.engines.contract import EngineContract


class TestDrift(EngineContract):
    specs = ("drift", "drift:fault=off")
"""

import pytest

pytest.register_assert_rewrite("narrowdown.engines.contract.suite")

from narrowdown.engines.contract.suite import (  # noqa: E402
    EngineContract,
    model_with_weights_outside,
    small_model,
)

__all__ = ["EngineContract", "model_with_weights_outside", "small_model"]
