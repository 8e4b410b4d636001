"""What ``genai_config.json`` says of the decoder that lies beside it, as the model builder of ONNX
Runtime GenAI writes it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from narrowdown.engines.data import InputProblem, sequences
from narrowdown.engines.graph.load import StoredModel
from narrowdown.engines.probe import LoadInputs
from narrowdown.engines.store import decoding, regular

_NAME = "genai_config.json"


def read_beside(path: Path, open_model: Callable[[], StoredModel]) -> dict[str, Any]:
    """Facts: ``suggested``, the options that run the decoder as a loop; ``cache``, how many heads a
    cache has, and their size. ``warnings`` where the file does not fit the model; nothing where
    it is of another one. ``open_model``: asked only where the file is of this one."""
    try:
        match decoding.decode(regular.read(path.with_name(_NAME))):
            case {
                "model": {
                    "decoder": {
                        "filename": path.name,
                        "inputs": dict(fed),
                        "outputs": dict(given),
                        "num_key_value_heads": int(heads),
                        "head_size": int(size),
                    }
                }
            } if heads > 0 < size:
                # `present_key_names` go back into `past_key_names`, with %d for the layer.
                named = {key.replace("present", "past"): name for key, name in given.items()}
                carry = [
                    f"{named[key]}:{fed[key]}".replace("%d", "*") for key in fed if key in named
                ]
                tokens = []
                if "logits" in given and "input_ids" in fed:
                    tokens = [f"{given['logits']}:{fed['input_ids']}{sequences.CHOICE}"]
                probe = LoadInputs(model="", carry=tuple(carry), carry_token=tuple(tokens))
                model = open_model()
                sequences.resolve(probe, model.inputs, model.outputs)
                suggested = [*(("carry", c) for c in carry), *(("carry_token", t) for t in tokens)]
                return {"suggested": suggested, "cache": [heads, size]}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, InputProblem) as error:
        why = str(getattr(error, "strerror", error)).rstrip(".")
        return {"warnings": [f"'{_NAME}' beside the model was left aside: {why}."]}
    return {}
