"""Modules that are right in FP32 and wrong in FP16, each in one line, which ends in ``# NAME``: the name
of the function that builds it. Random weights."""

from typing import Any

import torch
from models import Rms, Vit, image, seeded
from torch import nn


class Plain(nn.Module):
    """A decoder's layer without attention, which rounding alone does not upset."""

    def __init__(self, width: int, inner: nn.Module | None = None) -> None:
        super().__init__()
        self.norm, self.up, self.down = (
            nn.LayerNorm(width),
            nn.Linear(width, 2 * width),
            nn.Linear(2 * width, width),
        )
        self.inner = inner or nn.GELU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(self.inner(self.up(self.norm(x))))


class Stack(nn.Module):
    """Layers between a first and a last module."""

    def __init__(self, first: nn.Module, layers: list[nn.Module], last: nn.Module) -> None:
        super().__init__()
        self.first, self.layers, self.last = first, nn.ModuleList(layers), last

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for layer in self.layers:
            x = layer(x)
        return self.last(x)


class SquaredNorm(Rms):
    """Squares over 65,504."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        squares = x.pow(2)  # norm
        return x * torch.rsqrt(squares.mean(-1, keepdim=True) + self.eps) * self.weight


class Mask(nn.Module):
    """FP32's least number is -Inf in FP16, and 0 times that is NaN."""

    def forward(self, keep: torch.Tensor) -> torch.Tensor:
        return (1.0 - keep.float())[:, None, :] * torch.finfo(torch.float32).min  # mask


class Masked(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.mask, self.head = Mask(), nn.Linear(width, 8)

    def forward(self, x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        scores = self.q(x) @ self.k(x).transpose(-1, -2) / 6.0
        return self.head((scores + self.mask(keep)).softmax(-1) @ self.v(x))


class UnitLength(nn.Module):
    """An epsilon that is 0 in FP16, beside a padded row of zeros."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        length = x.square().sum(-1, keepdim=True).sqrt()
        return x / (length + 2e-8)  # epsilon


class ByHandSoftplus(nn.Module):
    """exp over 65,504."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.log(1.0 + torch.exp(x * 6.0)) / 6.0  # exponential


class SumPool(nn.Module):
    """A sum over 65,504, divided only then."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.head = nn.Linear(width, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = (x + 40.0).sum(1)  # total
        return self.head(total / x.shape[1] - 40.0)


@seeded
def norm() -> Any:
    width = 32
    first = nn.Linear(width, width)
    with torch.no_grad():
        first.weight.mul_(1500)
    last = nn.Sequential(SquaredNorm(width), nn.Linear(width, 8))
    return Stack(first, [Plain(width), Plain(width)], last), (torch.randn(2, 12, width),)


@seeded
def mask() -> Any:
    keep = torch.ones(2, 12, dtype=torch.int64)
    keep[1, 8:] = 0
    return Masked(), (torch.randn(2, 12, 32), keep)


@seeded
def epsilon() -> Any:
    width = 32
    layers: list[nn.Module] = [Plain(width), Plain(width)]
    layers[0].norm = UnitLength()
    tokens = torch.randint(1, 100, (2, 12))
    tokens[0, -3:] = 0
    return Stack(nn.Embedding(100, width, padding_idx=0), layers, nn.Linear(width, 8)), (tokens,)


@seeded
def exponential() -> Any:
    act = ByHandSoftplus()
    made = Vit(width=32, depth=3, act=lambda i: act if i == 1 else nn.GELU())
    with torch.no_grad():
        made.blocks[1].fc1.weight.mul_(6)
    return made, (image(),)


@seeded
def total() -> Any:
    width = 16
    layers: list[nn.Module] = [Plain(width), Plain(width)]
    return Stack(nn.Linear(width, width), layers, SumPool(width)), (torch.randn(1, 2048, width),)
