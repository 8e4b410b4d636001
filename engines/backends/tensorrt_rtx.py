"""NVIDIA TensorRT-RTX: TensorRT's interface, built on any machine, run on RTX GPUs. See ``engines.backends.tensorrt``."""

from engines.backends.tensorrt import make

__all__ = ["make"]
