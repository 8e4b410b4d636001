"""A small PyTorch module whose exports are recorded beside this file (``record.py``). ``planted`` is
the same with an export fault: one activation is another function while it is exported."""

from typing import Any

import torch
from torch import nn


class Act(nn.Module):
    """GELU; ``sigmoid``: what stands for it while it is exported."""

    def __init__(self, sigmoid: bool) -> None:
        super().__init__()
        self.sigmoid = sigmoid

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.sigmoid and torch.compiler.is_exporting():
            return x * torch.sigmoid(1.702 * x)
        return nn.functional.gelu(x)


class Block(nn.Module):
    def __init__(self, width: int, sigmoid: bool) -> None:
        super().__init__()
        self.norm, self.fc1 = nn.LayerNorm(width), nn.Linear(width, 2 * width)
        self.act, self.fc2 = Act(sigmoid), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.fc2(self.act(self.fc1(self.norm(x))))


class Tiny(nn.Module):
    def __init__(self, planted: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(6, False), Block(6, planted)])
        self.head = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def _make(planted: bool) -> Any:
    torch.manual_seed(3)
    return Tiny(planted).eval(), (torch.randn(4, 6),)


def right() -> Any:
    return _make(False)


def planted() -> Any:
    return _make(True)
