"""A ``genai_config.json`` as ONNX Runtime GenAI's model builder writes it, beside a decoder whose
names and open dimensions say nothing by themselves."""

import json

import msgspec
import pytest
from onnx import TensorProto, helper

from narrowdown.engines.data import generation
from narrowdown.engines.data.samples import load_feed, load_inputs
from narrowdown.engines.probe import LoadInputs

CONFIG = {
    "model": {
        "bos_token_id": 1,
        "context_length": 512,
        "decoder": {
            "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
            "filename": "decoder.onnx",
            "head_size": 16,
            "hidden_size": 64,
            "inputs": {
                "input_ids": "toks",
                "past_key_names": "memory.%d.k",
                "past_value_names": "memory.%d.v",
            },
            "outputs": {
                "logits": "scores",
                "present_key_names": "attn%d/key",
                "present_value_names": "attn%d/value",
            },
            "num_attention_heads": 4,
            "num_hidden_layers": 1,
            "num_key_value_heads": 2,
        },
        "eos_token_id": [2, 3],
        "type": "llama",
        "vocab_size": 100,
    },
    "search": {"max_length": 512, "past_present_share_buffer": True},
}
SUGGESTED = (
    ("carry", "attn*/key:memory.*.k"),
    ("carry", "attn*/value:memory.*.v"),
    ("carry_token", "scores:toks=argmax"),
)


@pytest.fixture
def decoder(make):
    ids, cache = (TensorProto.INT64, ["b", "s"]), (TensorProto.FLOAT, ["b", "heads", "past", "of"])
    pairs = {"toks": "scores", "memory.0.k": "attn0/key", "memory.0.v": "attn0/value"}
    nodes = [helper.make_node("Identity", [a], [b]) for a, b in pairs.items()]
    kinds = dict(zip(pairs, (ids, cache, cache), strict=True))
    return make(kinds, nodes, outputs={pairs[name]: kind for name, kind in kinds.items()})


def test_pairs_tokens_and_an_empty_cache_are_those_of_the_file(tmp_path, store, decoder) -> None:
    (tmp_path / "genai_config.json").write_text(json.dumps(CONFIG))
    found = generation.read_beside(tmp_path / "decoder.onnx", lambda: decoder)
    told = msgspec.convert({"model": decoder.digest, **found}, LoadInputs)
    assert (told.suggested, told.cache) == (SUGGESTED, (2, 16))
    facts = load_inputs(told, decoder, store)
    assert tuple(facts["suggested"]) == SUGGESTED
    made = load_feed(store, facts["inputs"], "random:0")
    assert {made[name].shape for name in ("memory.0.k", "memory.0.v")} == {(1, 2, 0, 16)}


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (lambda text: text[:40], True),
        (lambda text: text.replace("memory.%d.v", "other.%d.v"), True),
        (lambda text: text.replace("decoder.onnx", "vision.onnx"), False),
        (lambda text: text.replace("16", "-16"), False),
    ],
)
def test_a_file_that_does_not_fit_is_left_aside(tmp_path, decoder, broken, said) -> None:
    (tmp_path / "genai_config.json").write_text(broken(json.dumps(CONFIG)))
    found = generation.read_beside(tmp_path / "decoder.onnx", lambda: decoder)
    assert list(found) == ["warnings"] * said
