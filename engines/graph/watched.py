"""Which tensors of a model can be watched, and how many of them in one build. Pure."""

from collections.abc import Sequence

from narrowdown.engines.graph import GraphIndex

# What a tensor of unknown shape counts as: enough that a few hundred of them fill a batch, little
# enough that one does not. Chosen, not measured.
UNKNOWN_BYTES = 1 << 20
# Of tensors that are watched in one build: they fit beside a model on any machine that runs it.
# Chosen, not measured.
BATCH_BYTES = 512 << 20
# Types of tensors that hold no numbers of their own; "" is a type that nothing tells.
UNWATCHED = ("", "sequence", "optional")


def pack_batches(
    index: GraphIndex, tensors: Sequence[int], limit_bytes: int, most: int = 0
) -> list[tuple[int, ...]]:
    """Tensors in order, packed so that no batch but a single tensor exceeds the bytes. Unknown
    sizes count 1 MiB. ``most``: tensors of a batch; 0: any number."""
    packed: list[list[int]] = []
    room = 0
    for t in tensors:
        size = index.tensors[t].bytes
        size = size if size >= 0 else UNKNOWN_BYTES
        if not packed or size > room or len(packed[-1]) == most > 0:
            packed.append([])
            room = limit_bytes
        packed[-1].append(t)
        room -= size
    return [tuple(b) for b in packed]


def split_markable(index: GraphIndex) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(tensors that can be watched, tensors that cannot: sequences, strings and unknown types). The
    model's outputs are left out."""
    final = set(index.outputs)
    made = [t for t in index.tensors if t.kind == "node" and t.name and t.id not in final]
    can = tuple(t.id for t in made if t.dtype not in (*UNWATCHED, "string"))
    return can, tuple(t.id for t in made if t.id not in set(can))
