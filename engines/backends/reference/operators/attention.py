"""Attention and what goes with it, of ONNX Runtime's own domain, ``com.microsoft``: as transformers
are written.

What packs, quantizes or shares buffers is left to others: the judge abstains, and says for which
node.
"""

import math
from typing import NamedTuple

import numpy as np

from narrowdown.engines.backends.reference.operators.base import Array
from narrowdown.engines.backends.reference.operators.fused import Contrib, Fed, sigmoid, wide


def softmax(x: Array) -> Array:
    """Along the last axis."""
    lifted = np.exp(x - x.max(axis=-1, keepdims=True))
    return np.asarray(lifted / lifted.sum(axis=-1, keepdims=True))


def split(x: Array, heads: int) -> Array:
    """(batch, sequence, heads * size) as (batch, heads, sequence, size)."""
    batch, sequence, hidden = x.shape
    return x.reshape(batch, sequence, heads, hidden // heads).transpose(0, 2, 1, 3)


def join(x: Array) -> Array:
    """(batch, heads, sequence, size) as (batch, sequence, heads * size)."""
    batch, heads, sequence, size = x.shape
    return x.transpose(0, 2, 1, 3).reshape(batch, sequence, heads * size)


class Heads(NamedTuple):
    """Queries, keys and values, (batch, heads, sequence, size) each; ``past``: how many of the keys
    and values are past."""

    q: Array
    k: Array
    v: Array
    past: int


class _Attending(Contrib):
    def attend(
        self, heads: Heads, mask: Array | None, bias: Array | None, *, causal: bool = False
    ) -> Array:
        """``mask``: as the node has it. The output, (batch, sequence, hidden)."""
        q, k, v, past = heads
        queries, keys = q.shape[2], k.shape[2]
        scores = np.matmul(q, k.transpose(0, 1, 3, 2)) * (
            self.number("scale", 0) or 1 / math.sqrt(q.shape[-1])
        )
        hidden = (
            np.zeros((1, 1, 1, keys), bool)
            if mask is None
            else self.read_mask(mask, q.shape[0], queries, keys)
        )
        scores = scores + np.where(hidden, self.number("mask_filter_value", -10000.0), 0)
        if causal or self.given.get("unidirectional"):
            if keys != past + queries:  # which token comes before which the page does not say then
                self.refuse(f"one direction and {queries} queries for {keys - past} keys")
            ahead = np.arange(keys)[None] > np.arange(queries)[:, None] + past
            scores = np.where(ahead, -np.inf, scores)
        return join(np.matmul(softmax(scores + (0 if bias is None else wide(bias))), v))

    def read_mask(self, mask: Array, batch: int, queries: int, keys: int) -> Array:
        """Where nothing may be attended to, broadcast to (batch, heads, queries, keys)."""
        if mask.shape == (batch,):  # how many tokens count
            return np.asarray(np.arange(keys)[None, None, None] >= mask.reshape(-1, 1, 1, 1))
        if mask.shape == (batch, keys):
            return np.asarray(mask.reshape(batch, 1, 1, keys) == 0)
        if mask.shape == (batch, queries, keys):
            return np.asarray(mask.reshape(batch, 1, queries, keys) == 0)
        self.refuse(f"a mask of {'x'.join(map(str, mask.shape))}")
        return mask

    def with_past(
        self, q: Array, k: Array, v: Array, keys: Array | None, values: Array | None
    ) -> Heads:
        """Keys and values behind those that are past, where there are any."""
        if keys is None or values is None:
            return Heads(q, k, v, 0)
        k, v = (np.concatenate((wide(old), now), axis=2) for old, now in ((keys, k), (values, v)))
        return Heads(q, k, v, keys.shape[2])

    def cut(self, *made: Array) -> tuple[Array, ...]:
        """As many as the node gives."""
        return made[: len(self.onnx_node.output)]


class Attention(_Attending):
    """Projects its input itself; ``past`` and ``present`` hold keys and values, one on the
    other."""

    inputs = ("x", "weights", "bias", "mask", "past", "attention_bias", "past_length")

    def compute_fed(self, fed: Fed) -> tuple[Array, ...]:
        x, weights, bias = fed.need("x"), fed.need("weights"), fed.get("bias")
        if self.given.get("do_rotary"):
            self.refuse("rotary embedding")
        if self.given.get("past_present_share_buffer") or fed.get("past_length") is not None:
            self.refuse("a buffer shared by past and present")
        heads, sizes = int(self.given["num_heads"]), list(self.given.get("qkv_hidden_sizes", ()))
        sizes = sizes or [weights.shape[1] // 3] * 3
        made = np.matmul(wide(x), wide(weights)) + (0 if bias is None else wide(bias))
        q, k, v = (split(part, heads) for part in np.split(made, np.cumsum(sizes)[:2], axis=-1))
        past = fed.get("past")
        told = self.with_past(q, k, v, *((None, None) if past is None else past))
        found = self.attend(told, fed.get("mask"), fed.get("attention_bias")).astype(x.dtype)
        alike = told.k.shape == told.v.shape
        return self.cut(found, np.stack((told.k, told.v)).astype(x.dtype) if alike else found)


class MultiHeadAttention(_Attending):
    """Queries, keys and values are projected already; ``bias`` is that of their projection."""

    inputs = (
        "query", "key", "value", "bias", "mask", "attention_bias", "past_key", "past_value", "past_length", "indirection",
    )  # fmt: skip

    def compute_fed(self, fed: Fed) -> tuple[Array, ...]:
        query, key, value, bias = (
            fed.need("query"),
            fed.get("key"),
            fed.get("value"),
            fed.get("bias"),
        )
        if key is None or value is None or query.ndim != 3 or key.ndim not in (3, 4):
            self.refuse("queries, keys or values that are packed")
            return (query,)
        if fed.get("past_length") is not None or fed.get("indirection") is not None:
            self.refuse("a buffer shared by past and present")
        if len(self.onnx_node.output) > 3:
            self.refuse("its scores as an output")
        heads = int(self.given["num_heads"])
        parts = [wide(query), wide(key), wide(value)]
        if bias is not None:
            if key.ndim == 4:
                self.refuse("a bias for keys that are split already")
            cuts = np.cumsum([part.shape[-1] for part in parts])[:2]
            parts = [part + b for part, b in zip(parts, np.split(wide(bias), cuts), strict=True)]
        q, k, v = (split(part, heads) if part.ndim == 3 else part for part in parts)
        told = self.with_past(q, k, v, fed.get("past_key"), fed.get("past_value"))
        found = self.attend(told, fed.get("mask"), fed.get("attention_bias"))
        return self.cut(*(part.astype(query.dtype) for part in (found, told.k, told.v)))


class GroupQueryAttention(_Attending):
    """Several heads of queries share one of keys and values; a token attends to those before it,
    and to itself. Each row has as many tokens: of others the page does not say which of their
    outputs mean anything."""

    inputs = (
        "query", "key", "value", "past_key", "past_value", "lengths", "total", "cosines", "sines", "positions", "attention_bias",
        "sinks", "k_scale", "v_scale",
    )  # fmt: skip

    def compute_fed(self, fed: Fed) -> tuple[Array, ...]:
        self._refuse_unusual(fed)
        query, past = fed.need("query"), fed.get("past_key")
        heads, groups = int(self.given["num_heads"]), int(self.given["kv_num_heads"])
        q, k, v = (
            split(part, n)
            for part, n in zip(self._list_parts(fed), (heads, groups, groups), strict=True)
        )
        before, sequence = 0 if past is None else past.shape[2], q.shape[2]
        lengths, total = fed.need("lengths"), fed.need("total")
        if before + sequence != int(total.reshape(-1)[0]) or np.any(
            lengths != before + sequence - 1
        ):
            self.refuse("rows of other lengths, or a buffer shared by past and present")
        if self.given.get("do_rotary"):
            if fed.get("positions") is not None:
                self.refuse("positions of its own")
            at = np.arange(before, before + sequence)
            angles = wide(fed.need("cosines"))[at], wide(fed.need("sines"))[at]
            paired = bool(self.given.get("rotary_interleaved"))
            q, k = (turn(part, *angles, paired) for part in (q, k))
        told = self.with_past(q, k, v, past, fed.get("past_value"))
        keys, values = (np.repeat(part, heads // groups, axis=1) for part in (told.k, told.v))
        spread = Heads(q, keys, values, told.past)
        found = self.attend(spread, None, fed.get("attention_bias"), causal=True)
        return self.cut(*(part.astype(query.dtype) for part in (found, told.k, told.v)))

    def _refuse_unusual(self, fed: Fed) -> None:
        usual = {
            "local_window_size": (-1,),
            "softcap": (0,),
            "smooth_softmax": (-1, 0),
            "qk_output": (0,),
            "causal": (1,),
        }
        if any(self.number(name, values[0]) not in values for name, values in usual.items()):
            self.refuse("a window, a cap or another softmax")
        beyond = any(fed.get(name) is not None for name in ("sinks", "k_scale", "v_scale"))
        if beyond or len(self.onnx_node.output) > 3:
            self.refuse("sinks, quantized keys or scores as an output")

    def _list_parts(self, fed: Fed) -> list[Array]:
        """Queries, keys and values, which may be packed into one."""
        query, key, value = wide(fed.need("query")), fed.get("key"), fed.get("value")
        if key is not None and value is not None:
            return [query, wide(key), wide(value)]
        heads, groups = int(self.given["num_heads"]), int(self.given["kv_num_heads"])
        size = query.shape[-1] // (heads + 2 * groups)
        return np.split(query, [heads * size, (heads + groups) * size], axis=-1)


def turn(x: Array, cos: Array, sin: Array, interleaved: bool) -> Array:
    """``x`` (batch, heads, sequence, size) with pairs of elements turned, as many as there are
    angles; the rest stays."""
    made, turned = x.copy(), 2 * cos.shape[-1]
    first, second = (
        (np.s_[..., 0:turned:2], np.s_[..., 1:turned:2])
        if interleaved
        else (np.s_[..., : turned // 2], np.s_[..., turned // 2 : turned])
    )
    a, b = x[first], x[second]
    made[first], made[second] = a * cos - b * sin, b * cos + a * sin
    return made


class RotaryEmbedding(Contrib):
    """Pairs of elements turned by the angle of their position: halves of a head, or neighbours with
    ``interleaved``."""

    def compute(self, x: Array, positions: Array, cosines: Array, sines: Array) -> tuple[Array]:  # type: ignore[override]
        if self.given.get("is_packed_batching"):
            self.refuse("batches that are packed")
        if self.number("scale", 1.0) != 1:
            self.refuse(
                "a scale"
            )  # of what, the page does not say, and ONNX Runtime's CPU leaves it out
        turned = 2 * cosines.shape[1]
        heads = int(self.given.get("num_heads", 0))
        flat = x.ndim == 3
        each = x if not flat else split(x, heads or x.shape[-1] // turned)
        batch, _, sequence, _ = each.shape
        at = (
            positions.reshape(-1)[0] + np.arange(sequence)[None]
            if positions.size == 1
            else positions
        )
        at = np.broadcast_to(at, (batch, sequence))
        made = turn(
            wide(each),
            wide(cosines)[at][:, None],
            wide(sines)[at][:, None],
            bool(self.given.get("interleaved")),
        )
        return ((join(made) if flat else made).astype(x.dtype),)


class _GroupNormalization(Contrib):
    def normalize(self, total: Array, gamma: Array, beta: Array) -> Array:
        """``total``: channels last, or first after the batch, as ``channels_last`` says."""
        last = bool(self.given.get("channels_last", 1))
        x = total if last else np.moveaxis(total, 1, -1)
        groups = int(self.given["groups"])
        each = x.reshape(x.shape[0], -1, groups, x.shape[-1] // groups)
        mean = each.mean(axis=(1, 3), keepdims=True)
        spread = ((each - mean) ** 2).mean(axis=(1, 3), keepdims=True)
        found = ((each - mean) / np.sqrt(spread + self.number("epsilon", 1e-5))).reshape(x.shape)
        found = found * wide(gamma) + wide(beta)
        match int(self.given.get("activation", 0)):
            case 0:
                pass
            case 1:
                found = found * sigmoid(found)
            case other:
                self.refuse(f"the activation {other}")
        return found if last else np.moveaxis(found, -1, 1)


class GroupNorm(_GroupNormalization):
    def compute(self, x: Array, gamma: Array, beta: Array) -> tuple[Array]:  # type: ignore[override]
        return (self.normalize(wide(x), gamma, beta).astype(x.dtype),)


class SkipGroupNorm(_GroupNormalization):
    """Also gives the sum that it normalizes."""

    def compute(  # type: ignore[override]
        self, x: Array, gamma: Array, beta: Array, skip: Array, bias: Array | None = None
    ) -> tuple[Array, ...]:
        last = bool(self.given.get("channels_last", 1))
        spread = (1, 1, -1) if last else (-1, 1, 1)
        more = wide(skip).reshape(x.shape[0], *spread) if skip.ndim == 2 else wide(skip)
        total = wide(x) + more + (0 if bias is None else wide(bias).reshape(spread))
        return (self.normalize(total, gamma, beta).astype(x.dtype), total.astype(x.dtype))[
            : len(self.onnx_node.output)
        ]


ATTENTION = (
    Attention,
    GroupNorm,
    GroupQueryAttention,
    MultiHeadAttention,
    RotaryEmbedding,
    SkipGroupNorm,
)
