"""Modules whose exported program is right, and whose ONNX model has one wrong number. Random weights."""

from collections.abc import Callable
from typing import Any

import torch
from models import Decoder, Vit, edited, image, seeded, set_attribute
from torch import nn


def scale_constant(number: int, factor: float) -> Callable[[Any], None]:
    """The scalar that the Mul of that number reads is another one."""

    def edit(model: Any) -> None:
        import numpy as np
        import onnx_ir

        read = [
            v for node in model.graph if node.op_type == "Mul" for v in node.inputs if v is not None
        ]
        scalars = [v for v in read if v.const_value is not None and v.const_value.size == 1]
        value = scalars[number]
        value.const_value = onnx_ir.tensor(
            value.const_value.numpy() * np.float32(factor), name=value.name
        )

    return edit


class Slopes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3), nn.Conv2d(8, 4, 1)
        self.first, self.second = nn.LeakyReLU(0.05), nn.LeakyReLU(0.05)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.c(self.second(self.b(self.first(self.a(x)))))


@seeded
def vit() -> Any:
    return Vit(width=32, depth=3), (image(),)


@seeded
def slopes() -> Any:
    return Slopes(), (torch.randn(2, 3, 16, 16),)


@seeded
def decoder() -> Any:
    return Decoder(width=32, depth=2, heads=2), (torch.randint(0, 100, (1, 12)),)


def epsilon() -> Any:
    return edited(vit, set_attribute("LayerNormalization", 3, "epsilon", 3e-2))


def slope() -> Any:
    return edited(slopes, set_attribute("LeakyRelu", 1, "alpha", 0.3))


def scale() -> Any:
    return edited(decoder, scale_constant(1, 1.3))
