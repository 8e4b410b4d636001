"""The contract of engines as tests, for whoever writes one; it needs pytest, and nothing of the program imports it.

from engines.contract import EngineContract


class TestDrift(EngineContract):
    specs = ("drift", "drift:fault=off")
"""

import pytest

pytest.register_assert_rewrite("engines.contract.suite")

from engines.contract.suite import EngineContract, model_with_weights_outside, small_model  # noqa: E402

__all__ = ["EngineContract", "model_with_weights_outside", "small_model"]
