"""Attention and what goes with it, of ONNX Runtime's own domain, ``com.microsoft``: as transformers
are written.

What packs, quantizes or shares buffers is left to others: the judge abstains, and says for which
node.
"""

import math

import numpy as np

from narrowdown.engines.backends.reference.operators.base import Array
from narrowdown.engines.backends.reference.operators.fused import Contrib, sigmoid, wide

MASKED = -10000.0  # ``mask_filter_value`` where a node states none


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


class _Attending(Contrib):
    def attend(
        self,
        q: Array,
        k: Array,
        v: Array,
        mask: Array | None,
        bias: Array | None,
        past: int,
        *,
        causal: bool = False,
    ) -> Array:
        """(batch, heads, sequence, size) each, ``k`` and ``v`` with what is past, so many keys;
        ``mask``: as the node has it. The output, (batch, sequence, hidden)."""
        queries, keys = q.shape[2], k.shape[2]
        scores = np.matmul(q, k.transpose(0, 1, 3, 2)) * (
            self.number("scale", 0) or 1 / math.sqrt(q.shape[-1])
        )
        hidden = (
            np.zeros((1, 1, 1, keys), bool)
            if mask is None
            else self.read_mask(mask, q.shape[0], queries, keys)
        )
        scores = scores + np.where(hidden, self.number("mask_filter_value", MASKED), 0)
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

    def cut(self, *made: Array) -> tuple[Array, ...]:
        """As many as the node gives."""
        return made[: len(self.onnx_node.output)]


class Attention(_Attending):
    """Projects its input itself; ``past`` and ``present`` hold keys and values, one on the
    other."""

    def compute(  # type: ignore[override]
        self, x: Array, weights: Array, bias: Array | None = None, mask: Array | None = None, past: Array | None = None,
        attention_bias: Array | None = None, past_length: Array | None = None,
    ) -> tuple[Array, ...]:  # fmt: skip
        if self.given.get("do_rotary"):
            self.refuse("rotary embedding")
        if self.given.get("past_present_share_buffer") or past_length is not None:
            self.refuse("a buffer shared by past and present")
        heads, sizes = int(self.given["num_heads"]), list(self.given.get("qkv_hidden_sizes", ()))
        sizes = sizes or [weights.shape[1] // 3] * 3
        made = np.matmul(wide(x), wide(weights)) + (0 if bias is None else wide(bias))
        q, k, v = (split(part, heads) for part in np.split(made, np.cumsum(sizes)[:2], axis=-1))
        if past is not None:
            k, v = (
                np.concatenate((wide(old), now), axis=2)
                for old, now in zip(past, (k, v), strict=True)
            )
        before = 0 if past is None else past.shape[3]
        found = self.attend(q, k, v, mask, attention_bias, before).astype(x.dtype)
        return self.cut(found, np.stack((k, v)).astype(x.dtype) if k.shape == v.shape else found)


class MultiHeadAttention(_Attending):
    """Queries, keys and values are projected already; ``bias`` is that of their projection."""

    def compute(  # type: ignore[override]
        self, query: Array, key: Array | None = None, value: Array | None = None, bias: Array | None = None,
        mask: Array | None = None, attention_bias: Array | None = None, past_key: Array | None = None,
        past_value: Array | None = None, past_length: Array | None = None, indirection: Array | None = None,
    ) -> tuple[Array, ...]:  # fmt: skip
        if key is None or value is None or query.ndim != 3 or key.ndim not in (3, 4):
            self.refuse("queries, keys or values that are packed")
            return (query,)
        if past_length is not None or indirection is not None:
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
        if past_key is not None and past_value is not None:
            k, v = (
                np.concatenate((wide(past), now), axis=2)
                for past, now in ((past_key, k), (past_value, v))
            )
        before = 0 if past_key is None else past_key.shape[2]
        found = self.attend(q, k, v, mask, attention_bias, before)
        return self.cut(*(part.astype(query.dtype) for part in (found, k, v)))


class GroupQueryAttention(_Attending):
    """Several heads of queries share one of keys and values; a token attends to those before it,
    and to itself. Each row has as many tokens: of others the page does not say which of their
    outputs mean anything."""

    def compute(  # type: ignore[override]
        self, query: Array, key: Array | None = None, value: Array | None = None, past_key: Array | None = None,
        past_value: Array | None = None, lengths: Array | None = None, total: Array | None = None,
        cosines: Array | None = None, sines: Array | None = None, positions: Array | None = None,
        attention_bias: Array | None = None, *rest: Array | None,
    ) -> tuple[Array, ...]:  # fmt: skip
        if lengths is None or total is None:
            self.refuse("no lengths")
            return (query,)
        usual = {
            "local_window_size": (-1,),
            "softcap": (0,),
            "smooth_softmax": (-1, 0),
            "qk_output": (0,),
            "causal": (1,),
        }
        if any(self.number(name, values[0]) not in values for name, values in usual.items()):
            self.refuse("a window, a cap or another softmax")
        if any(part is not None for part in rest) or len(self.onnx_node.output) > 3:
            self.refuse("sinks, quantized keys or scores as an output")
        heads, groups = int(self.given["num_heads"]), int(self.given["kv_num_heads"])
        if key is None or value is None:
            size = query.shape[-1] // (heads + 2 * groups)
            parts = np.split(wide(query), [heads * size, (heads + groups) * size], axis=-1)
        else:
            parts = [wide(query), wide(key), wide(value)]
        q, k, v = (split(part, n) for part, n in zip(parts, (heads, groups, groups), strict=True))
        before, sequence = 0 if past_key is None else past_key.shape[2], q.shape[2]
        if before + sequence != int(total.reshape(-1)[0]) or np.any(
            lengths != before + sequence - 1
        ):
            self.refuse("rows of other lengths, or a buffer shared by past and present")
        if self.given.get("do_rotary"):
            if cosines is None or sines is None or positions is not None:
                self.refuse("positions of its own")
                return (query,)
            at = np.arange(before, before + sequence)
            angles = wide(cosines)[at], wide(sines)[at]
            q, k = (
                turn(part, *angles, bool(self.given.get("rotary_interleaved"))) for part in (q, k)
            )
        if past_key is not None and past_value is not None:
            k, v = (
                np.concatenate((wide(past), now), axis=2)
                for past, now in ((past_key, k), (past_value, v))
            )
        keys, values = (np.repeat(part, heads // groups, axis=1) for part in (k, v))
        found = self.attend(q, keys, values, None, attention_bias, before, causal=True)
        return self.cut(*(part.astype(query.dtype) for part in (found, k, v)))


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
