"""Names that nobody can hold: those that are no text, and giant ones."""

from onnx import ModelProto

from narrowdown.engines.graph import ModelProblem
from narrowdown.engines.graph.protos import iterate_messages

LONGEST = 16_000  # characters of a name: an npz archive holds names of 65,535 bytes, of which one character takes four
# Fields of onnx's messages that name nodes, tensors and dimensions, and what a node does.
_NAMES = frozenset(
    {"name", "input", "output", "op_type", "domain", "attribute", "tensor_name", "dim_param"}
)


def refuse_odd_names(model: ModelProto, file: str) -> None:
    """Raise ``ModelProblem`` for a name that is no text in UTF-8, which protobuf gives as bytes and
    no graph, journal or screen holds, and for a giant one. ``file``: the model's name."""
    for part in iterate_messages(model):
        for field in _NAMES.intersection(part.DESCRIPTOR.fields_by_name):
            held = getattr(part, field)
            for word in [held] if isinstance(held, str | bytes) else held:
                if isinstance(word, bytes):
                    raise ModelProblem(
                        f"'{file}' is a damaged ONNX model: the name {word[:80]!r} in it is no text in UTF-8; "
                        "export it again with other names, or copy it again."
                    )
                if isinstance(word, str) and len(word) > LONGEST:
                    raise ModelProblem(
                        f"'{file}' has a name of {len(word):,} characters ({word[:40]}...), and no more than "
                        f"{LONGEST:,} can be held; export it again with shorter names."
                    )
