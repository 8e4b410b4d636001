"""Quantize a model's float original anew, with other settings."""

from narrowdown.engines.backends.onnxruntime.quantizer import quantize
from narrowdown.engines.data import originals
from narrowdown.engines.data.samples import load_feed
from narrowdown.engines.graph import ModelProblem, load
from narrowdown.engines.graph.quantized import TRIALS, find_settings, list_left_out
from narrowdown.engines.graph.standing_alone import standing_alone
from narrowdown.engines.probe import Measurement, Requantize
from narrowdown.engines.store import Store


def requantize(probe: Requantize, store: Store) -> Measurement:
    """Answer the probe. Raises ``ModelProblem``, ``InputProblem``, ``Damaged``."""
    model = load.load(store, probe.model)
    original = originals.load_original(store, model, probe.reference)
    settings = find_settings(model.index)
    if original is None or not settings:
        raise ModelProblem(
            "it takes the float original, and a model with weights and activations as codes."
        )
    left = [*list_left_out(model.index), *probe.left_out]
    feeds = [load_feed(store, probe.inputs, sample) for sample in probe.samples]
    whole = standing_alone(original.proto, original.weights_dir)
    try:
        made = quantize(whole, feeds, nodes_to_exclude=left, **{**settings, **TRIALS[probe.trial]})
    except (ValueError, RuntimeError, KeyError, TypeError, IndexError) as error:
        raise ModelProblem(f"onnxruntime.quantization did not do it: {error}") from error
    return Measurement(facts={"model": load.save(store, made)})
