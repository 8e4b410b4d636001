from narrowdown.engines.contract import EngineContract


class TestDrift(EngineContract):
    specs = ("drift", "drift:tanh=exact")
