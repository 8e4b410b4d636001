"""Models with random weights for the campaign: a ViT, a CNN like ConvNeXt, a decoder with rotary
embeddings and an LSTM. Each ``build`` function gives a module and example inputs.

``planted(name)`` gives the same with one export fault: what the module computes while it is exported
is not what it computes otherwise, as in code that takes another way "for ONNX".
"""

import functools
import math
import os
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812


def exporting() -> bool:
    return torch.compiler.is_exporting()


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, n, c = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        x = F.scaled_dot_product_attention(q, k, v)
        return self.proj(x.transpose(1, 2).reshape(b, n, c))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, act: nn.Module) -> None:
        super().__init__()
        self.n1, self.attn = nn.LayerNorm(width), Attention(width, heads)
        self.n2 = nn.LayerNorm(width)
        self.fc1, self.act, self.fc2 = nn.Linear(width, 4 * width), act, nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attn(self.n1(x))
        return x + self.fc2(self.act(self.fc1(self.n2(x))))


class Vit(nn.Module):
    def __init__(
        self,
        width: int = 64,
        depth: int = 6,
        heads: int = 4,
        act: Callable[[int], nn.Module] = lambda _: nn.GELU(),
    ) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, 8, 8)
        self.cls = nn.Parameter(torch.randn(1, 1, width))
        self.pos = nn.Parameter(torch.randn(1, 65, width) * 0.1)
        self.blocks = nn.ModuleList(Block(width, heads, act(i)) for i in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.patch(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], 1) + self.pos
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


class ConvBlock(nn.Module):
    def __init__(self, width: int, norm: nn.Module | None = None) -> None:
        super().__init__()
        self.dw = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = norm or nn.LayerNorm(width, eps=1e-6)
        self.pw1, self.act, self.pw2 = (
            nn.Linear(width, 4 * width),
            nn.GELU(),
            nn.Linear(4 * width, width),
        )
        self.gamma = nn.Parameter(torch.ones(width) * 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.dw(x).permute(0, 2, 3, 1))
        y = self.gamma * self.pw2(self.act(self.pw1(y)))
        return x + y.permute(0, 3, 1, 2)


class Upsampled(nn.Module):
    """A stage that is enlarged and added, as in segmentation heads."""

    def __init__(self, corners: bool | None = None) -> None:
        super().__init__()
        self.corners = corners

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        corners = exporting() if self.corners is None else self.corners
        return F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=corners)


class ConvNext(nn.Module):
    def __init__(
        self,
        width: int = 24,
        up: nn.Module | None = None,
        norm: nn.Module | None = None,
        bn: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 4, 4), bn or nn.BatchNorm2d(width), nn.ReLU(inplace=True)
        )
        self.stages = nn.ModuleList([ConvBlock(width), ConvBlock(width, norm)])
        self.down = nn.Conv2d(width, width, 2, 2)
        self.deep = ConvBlock(width)
        self.up = up or Upsampled(False)
        self.head = nn.Conv2d(width, 5, 1)
        for part in self.stem.modules():
            if isinstance(part, nn.BatchNorm2d):
                part.running_mean.uniform_(-0.5, 0.5)
                part.running_var.uniform_(0.5, 2.0)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.stem(image)
        for stage in self.stages:
            x = stage(x)
        return self.head(x + self.up(self.deep(self.down(x))))


class Rope(nn.Module):
    def __init__(self, size: int, half: bool = False) -> None:
        super().__init__()
        self.half = half
        self.register_buffer("inv", 1.0 / 10000 ** (torch.arange(0, size, 2).float() / size))

    def forward(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        angles = positions[:, None].float() * self.inv[None]
        angles = torch.cat([angles, angles], -1)
        cos, sin = angles.cos(), angles.sin()
        if self.half and exporting():
            cos, sin = cos.half().float(), sin.half().float()
        return cos, sin


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


class Rms(nn.Module):
    def __init__(self, width: int, eps: float = 1e-6, exported: float | None = None) -> None:
        super().__init__()
        self.weight, self.eps, self.exported = nn.Parameter(torch.ones(width)), eps, exported

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        eps = self.exported if self.exported is not None and exporting() else self.eps
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * self.weight


class DecoderLayer(nn.Module):
    def __init__(
        self, width: int, heads: int, norm: Callable[[], nn.Module], scale: float = 0.0
    ) -> None:
        super().__init__()
        self.heads, self.scale = heads, scale
        self.n1, self.n2 = norm(), norm()
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate, self.up, self.down = (
            nn.Linear(width, 3 * width),
            nn.Linear(width, 3 * width),
            nn.Linear(3 * width, width),
        )

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        b, n, c = x.shape
        y = self.n1(x)
        q, k, v = (
            p(y).reshape(b, n, self.heads, -1).transpose(1, 2) for p in (self.q, self.k, self.v)
        )
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        scale = self.scale if self.scale and exporting() else 1 / math.sqrt(c // self.heads)
        scores = q @ k.transpose(-1, -2) * scale
        mask = torch.full((n, n), float("-inf")).triu(1)
        x = x + self.o((scores + mask).softmax(-1).matmul(v).transpose(1, 2).reshape(b, n, c))
        y = self.n2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Decoder(nn.Module):
    def __init__(
        self,
        width: int = 64,
        depth: int = 4,
        heads: int = 4,
        half: bool = False,
        norm: Callable[[int], nn.Module] | None = None,
        scale: float = 0.0,
    ) -> None:
        super().__init__()
        self.embed = nn.Embedding(100, width)
        self.rope = Rope(width // heads, half)
        made = norm or (lambda _: Rms(width))
        self.layers = nn.ModuleList(
            DecoderLayer(width, heads, functools.partial(made, i), scale if i == 2 else 0.0)
            for i in range(depth)
        )
        self.norm, self.head = Rms(width), nn.Linear(width, 100, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        cos, sin = self.rope(torch.arange(tokens.shape[1], device=tokens.device))
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.head(self.norm(x))


class Lstm(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, width)
        self.lstm = nn.LSTM(width, width, 2, batch_first=True, bidirectional=True)
        self.drop, self.head = nn.Dropout(0.2), nn.Linear(2 * width, 7)

    def forward(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y, (h, _) = self.lstm(self.embed(tokens))
        return self.head(self.drop(y)), h


def image(size: int = 64) -> torch.Tensor:
    return torch.randn(2, 3, size, size)


def seeded(build: Callable[[], Any]) -> Callable[[], Any]:
    @functools.wraps(build)
    def made() -> Any:
        torch.manual_seed(7)
        return build()

    return made


@seeded
def vit() -> Any:
    return Vit(), (image(),)


@seeded
def vit_large() -> Any:
    """20 million weights."""
    return Vit(width=384, depth=11, heads=6), (image(),)


@seeded
def convnext() -> Any:
    return ConvNext(), (image(),)


@seeded
def decoder() -> Any:
    return Decoder(), (torch.randint(0, 100, (1, 12)),)


@seeded
def lstm() -> Any:
    return Lstm(), (torch.randint(0, 50, (2, 9)),)


# -- planted


class Switched(nn.Module):
    """One function in eager PyTorch, another while it is exported."""

    def __init__(
        self,
        eager: Callable[[torch.Tensor], torch.Tensor],
        exported: Callable[[torch.Tensor], torch.Tensor],
    ) -> None:
        super().__init__()
        self.eager, self.exported = eager, exported

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.exported(x) if exporting() else self.eager(x)


class TrainedNorm(nn.BatchNorm2d):
    """A batch normalization that is left in train mode by the export."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if exporting():
            return F.batch_norm(x, None, None, self.weight, self.bias, True, 0.0, self.eps)
        return super().forward(x)


class Baked(nn.Module):
    """A length that becomes a constant."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n = 6.0 if exporting() else float(x.abs().mean() * 8)
        return x / n


class BakedVit(Vit):
    def __init__(self) -> None:
        super().__init__()
        self.baked = Baked()

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.patch(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], 1) + self.pos
        for number, block in enumerate(self.blocks):
            x = block(x)
            if number == 2:
                x = self.baked(x)
        return self.head(self.norm(x)[:, 0])


def at(
    place: int, there: Callable[[], nn.Module], otherwise: Callable[[], nn.Module]
) -> Callable[[int], nn.Module]:
    return lambda i: there() if i == place else otherwise()


def edited(build: Callable[[], Any], edit: Callable[[Any], None]) -> Any:
    """The module, with a torch.onnx.export whose translation of one node is wrong."""
    plain = torch.onnx.export

    def export(*args: Any, **kwargs: Any) -> Any:
        made = plain(*args, **kwargs)
        edit(made.model)
        return made

    torch.onnx.export = export
    return build()


def set_attribute(op: str, number: int, name: str, value: Any) -> Callable[[Any], None]:
    def edit(model: Any) -> None:
        import onnx_ir

        node = [n for n in model.graph if n.op_type == op][number]
        kind = (
            onnx_ir.AttrFloat32
            if isinstance(value, float)
            else onnx_ir.AttrString
            if isinstance(value, str)
            else onnx_ir.AttrInt64
        )
        node.attributes[name] = kind(name, value)

    return edit


# name -> (how it is built, the module at fault)
PLANTED: dict[str, tuple[Callable[[], Any], str]] = {
    "gelu-tanh": (
        lambda: (
            Vit(
                act=at(
                    3,
                    lambda: Switched(F.gelu, functools.partial(F.gelu, approximate="tanh")),
                    nn.GELU,
                )
            ),
            (image(),),
        ),
        "blocks.3.act",
    ),
    "quick-gelu": (
        lambda: (
            Vit(
                act=at(1, lambda: Switched(F.gelu, lambda x: x * torch.sigmoid(1.702 * x)), nn.GELU)
            ),
            (image(),),
        ),
        "blocks.1.act",
    ),
    "align-corners": (lambda: (ConvNext(up=Upsampled()), (image(),)), "up"),
    "half-rope": (lambda: (Decoder(half=True), (torch.randint(0, 100, (1, 40)),)), "rope"),
    "epsilon": (
        lambda: (
            Decoder(norm=at(2, lambda: Rms(64, 1e-6, 1e-3), lambda: Rms(64))),
            (torch.randint(0, 100, (1, 12)),),
        ),
        "layers.2.n1",
    ),
    "baked-constant": (lambda: (BakedVit(), (image(),)), "baked"),
    "train-mode": (lambda: (ConvNext(bn=TrainedNorm(24)), (image(),)), "stem.1"),
    "scale": (lambda: (Decoder(scale=0.2), (torch.randint(0, 100, (1, 12)),)), "layers.2"),
    "translated-epsilon": (
        lambda: edited(vit, set_attribute("LayerNormalization", 5, "epsilon", 3e-2)),
        "blocks.2.n2",
    ),
    "translated-gelu": (
        lambda: edited(vit, set_attribute("Gelu", 4, "approximate", "tanh")),
        "blocks.4.act",
    ),
}


@seeded
def planted() -> Any:
    """The one that ``NARROWDOWN_PLANTED`` names."""
    return PLANTED[os.environ["NARROWDOWN_PLANTED"]][0]()
