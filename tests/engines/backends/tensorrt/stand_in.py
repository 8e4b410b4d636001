"""A stand-in for TensorRT's Python API: a builder that times kernels by a table, with an editable
timing cache as 10.8 and later document it. It builds nothing: enough to see what is asked of the
real one, and in which order.

Names and signatures are those of the bindings of 10.15 and 11.2; the log lines are put together
from the texts in their library.
"""

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import onnx

from narrowdown.engines.backends.base import Capability, EngineInfo
from narrowdown.engines.backends.tensorrt.engine import Engine
from narrowdown.engines.backends.tensorrt.settings import Settings

UNKNOWN = 2**64 - 1  # the kernel of a key that the cache does not hold
SLOWER = 0.5  # ms that each further kernel takes more


class Value:
    def __init__(self, tactic: int, ms: float) -> None:
        self.tacticHash, self.timingMSec = tactic, ms


class Cache:
    def __init__(self) -> None:
        self.entries: dict[str, Value] = {}

    def queryKeys(self) -> list[str]:  # noqa: N802
        return list(self.entries)

    def query(self, key: str) -> Value:
        return self.entries.get(key, Value(UNKNOWN, math.nan))

    def update(self, key: str, value: Value) -> bool:
        if key not in self.entries or not value.tacticHash:
            return False
        if math.isnan(value.timingMSec):
            del self.entries[key]
        else:
            self.entries[key] = value
        return True

    def serialize(self) -> Any:
        return memoryview(b"")


class Config:
    def __init__(self) -> None:
        self.flags: set[str] = set()
        self.cache: Any = None
        self.profiling_verbosity: Any = None

    def set_flag(self, flag: str) -> None:
        self.flags.add(flag)

    def clear_flag(self, flag: str) -> None:
        self.flags.discard(flag)

    def create_timing_cache(self, content: bytes) -> Cache:
        assert content == b""
        return Cache()

    def set_timing_cache(self, cache: Cache, ignore_mismatch: bool) -> bool:
        self.cache = cache
        return True

    def get_timing_cache(self) -> Cache:
        return self.cache


class Network:
    num_inputs = num_outputs = num_layers = 0

    def __init__(self) -> None:
        self.model = onnx.ModelProto()


class Parser:
    def __init__(self, network: Network, logger: Any) -> None:
        self.network = network

    def parse(self, content: bytes, path: str) -> bool:
        self.network.model.ParseFromString(content)
        return True


class Builder:
    """``kernels``: node name -> the kernels that it could take, the fastest first."""

    def __init__(self, said: list[list[str]], kernels: Mapping[str, Sequence[int]]) -> None:
        self.kernels, self._said = kernels, said
        self.asked: list[dict[str, int]] = []  # what the cache held when each build began

    def create_network(self, flags: int) -> Network:
        return Network()

    def create_builder_config(self) -> Config:
        return Config()

    def create_optimization_profile(self) -> Any:
        return SimpleNamespace()

    def build_serialized_network(self, network: Network, config: Config) -> Any:
        assert "EDITABLE_TIMING_CACHE" in config.flags
        assert "DISABLE_TIMING_CACHE" not in config.flags
        entries = config.cache.entries
        self.asked.append({k: v.tacticHash for k, v in entries.items()})
        for node in network.model.graph.node:
            key, offered = key_of(node.op_type), self.kernels[node.op_type]
            if key not in entries:
                lines = [
                    f"Autotuning op {node.name}(key: {key}):",
                    "tactic_id, cost(in ms), cost/fastest_cost, kernel_name, tactic_hash",
                ]
                lines += [
                    f"{i}, {1 + SLOWER * i}, {i}, a_kernel, 0x{k:016x}, "
                    for i, k in enumerate(offered)
                ]
                lines += [
                    f"The selected tactic is (tactic hash, cost(in ms)):0x{offered[0]:016x},1.0"
                ]
                for hearer in self._said:
                    hearer += lines
                entries[key] = Value(offered[0], 1.0)
            elif entries[key].tacticHash not in offered:
                return (
                    None  # "If this layer cannot use the new tactic, build errors will be reported"
                )
        return memoryview(b"1")


def key_of(op: str) -> str:
    """Operations of one kind share a key, as equal work does."""
    return f"0x{sum(map(ord, op)):032x}"


def engine(kernels: Mapping[str, Sequence[int]], **settings: Any) -> tuple[Engine, Builder]:
    """An engine of a library as 11 is: no selector, an editable cache."""
    hearers: list[list[str]] = []

    @contextlib.contextmanager
    def listening() -> Iterator[list[str]]:
        hearers.append([])
        yield hearers[-1]
        hearers.pop()

    builder = Builder(hearers, kernels)
    flags = SimpleNamespace(
        EDITABLE_TIMING_CACHE="EDITABLE_TIMING_CACHE",
        DISABLE_TIMING_CACHE="DISABLE_TIMING_CACHE",
        TF32="TF32",
    )
    trt = SimpleNamespace(
        BuilderFlag=flags, TimingCacheValue=Value, Builder=lambda _: builder, OnnxParser=Parser,
        NetworkDefinitionCreationFlag=SimpleNamespace(), ProfilingVerbosity=SimpleNamespace(DETAILED=2),
    )  # fmt: skip
    log = SimpleNamespace(
        logger=None, clear=lambda: None, errors=lambda: ["no such kernel"], listening=listening
    )
    found: Any = SimpleNamespace(
        trt=trt, log=log, title="TensorRT", version="11.2", rtx=False, selector=False, monitor=False, editable=Capability(True),
        plug=lambda _: None, has_flag=lambda name: hasattr(flags, name),
    )  # fmt: skip
    info = EngineInfo(
        "tensorrt", "tensorrt", "11.2", "a stand-in", "fp32", "float32", "stand-in", {}
    )
    chosen = Settings(precision="model", typing="strong", **settings)
    return Engine(info, found, chosen, True, Capability(False, "it is a stand-in.")), builder
