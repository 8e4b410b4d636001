"""One sample for each model: the arrays that it is fed, as the program that ships it would make them from what a user has.

Every function takes a seed and the model's file and gives arrays by input name; sample 0, 1, ... differ by the seed alone.
Recurrent models are fed the state that they themselves had after some sound before; classifiers of embeddings, the embeddings
of the model beside them.
"""

from functools import partial
from pathlib import Path

import numpy as np
import onnxruntime as ort

from tests.field.inputs import pictures, sound, words

Feed = dict[str, np.ndarray]


def _session(path: Path) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def vad(seed: int, path: Path, rate: bool = True, batch: int = 1) -> Feed:
    """silero VAD: 64 samples of context and a chunk of 512 at 16 kHz, and the state after the chunks before."""
    wave = sound.speech(2.5, 16000, seed)
    session = _session(path)
    chunks = int(np.random.default_rng(seed).integers(4, 40))
    state = np.zeros((2, batch, 128), np.float32)
    for i in range(chunks + 1):
        part = np.concatenate([wave[max(0, 512 * i - 64) : 512 * i], wave[512 * i : 512 * i + 512]])
        chunk = np.zeros((batch, 576), np.float32)
        chunk[:, 576 - part.size :] = part
        feed: Feed = {"input": chunk, "state": state}
        if rate:
            feed["sr"] = np.array(16000, np.int64)
        if i < chunks:
            state = session.run(None, feed)[1]
    return feed


def vad_sequence(seed: int, path: Path) -> Feed:
    """silero VAD over a whole second: [n, 576], and the state of a beginning."""
    wave = sound.speech(1.2, 16000, seed)
    frames = np.lib.stride_tricks.sliding_window_view(wave, 576)[::512].copy()
    zeros = np.zeros((1, 1, 128), np.float32)
    return {"input": frames, "h": zeros, "c": zeros}


def vad_old(seed: int, path: Path) -> Feed:
    """silero VAD of 2022: a chunk of 512 and two states of width 64."""
    wave = sound.speech(2.0, 16000, seed)
    session = _session(path)
    h = c = np.zeros((2, 1, 64), np.float32)
    for i in range(int(np.random.default_rng(seed).integers(3, 25))):
        feed: Feed = {"input": wave[None, 512 * i : 512 * i + 512], "sr": np.array(16000, np.int64), "h": h, "c": c}
        _, h, c = session.run(None, feed)
    return {**feed, "h": h, "c": c}


def waveform(seed: int, path: Path, seconds: float = 1.5, rate: int = 16000) -> Feed:
    """A preprocessor's input: [1, n] and its length."""
    wave = sound.speech(seconds, rate, seed)[None]
    return {"waveforms": wave, "waveforms_lens": np.array([wave.shape[1]], np.int64)}


def pitch(seed: int, path: Path) -> Feed:
    return {
        "audio": sound.speech(0.6, 16000, seed)[None],
        "fmin": np.array(46.875, np.float32),
        "fmax": np.array(2093.75, np.float32),
    }


def notes(seed: int, path: Path) -> Feed:
    return {"serving_default_input_2:0": sound.music(43844 / 22050, 22050, seed)[None, :, None]}


def quality(seed: int, path: Path) -> Feed:
    """DNSMOS: nine seconds at 16 kHz, 144,160 samples."""
    return {"input_1": sound.speech(9.01, 16000, seed)[None]}


def quality_spectrum(seed: int, path: Path) -> Feed:
    """DNSMOS of 2020: log power of 901 frames of 320."""
    power = sound.spectrum(sound.speech(9.2, 16000, seed), 320, 160)[:901]
    return {"input_1": np.log10(np.maximum(power, 1e-10)).astype(np.float32)[None]}


def quality_bands(seed: int, path: Path) -> Feed:
    """DNSMOS P.808: 900 frames of 120 bands in dB below the loudest, as (dB + 40) / 40."""
    bands = sound.mel(sound.speech(9.2, 16000, seed), 16000, 321, 160, 120)[:900]
    return {"input_1": ((np.maximum(bands - bands.max(), -80) + 40) / 40).astype(np.float32)[None]}


def echo(seed: int, path: Path, width: int = 64) -> Feed:
    """AECMOS: bands of the far end, the near end with its echo, and what was left."""
    far, near = sound.speech(4, 16000, seed), sound.speech(4, 16000, seed + 5000)
    signals = (far, (0.7 * near + 0.3 * np.roll(far, 800)), (0.7 * near + 0.02 * np.roll(far, 800)))
    bands = [sound.mel(s.astype(np.float32), 16000, 512, 256, 160) for s in signals]
    return {
        "input": ((np.stack(bands) + 40) / 40).astype(np.float32)[None],
        "h0": np.zeros((4, 1, width), np.float32),
    }


def loss(seed: int, path: Path) -> Feed:
    """PLCMOS: log power of speech with gaps, and a rater."""
    wave = sound.speech(3, 16000, seed)
    for at in np.random.default_rng(seed).integers(0, wave.size - 640, 8):
        wave[at : at + 640] = 0
    power = sound.spectrum(wave, 512, 160)
    rater = np.random.default_rng(seed).normal(0, 1, (1, 64)).astype(np.float32)
    return {
        "degraded_audio": np.log10(np.maximum(power, 1e-10)).astype(np.float32)[None, None],
        "rater_embed": rater,
    }


def wake_sound(seed: int, path: Path) -> Feed:
    """openWakeWord takes 16-bit values as floats."""
    return {"input": (sound.speech(1.0, 16000, seed)[None] * 32767).astype(np.float32)}


def wake_bands(seed: int, path: Path) -> Feed:
    bands = _bands(seed, path)
    return {"input_1": bands[:76][None, :, :, None]}


def wake_word(seed: int, path: Path, name: str, frames: int = 16) -> Feed:
    """The embeddings of so many windows of 76 frames, eight frames apart."""
    bands = _bands(seed, path, 0.4 + 0.08 * frames + 0.8)
    windows = np.stack([bands[8 * i : 8 * i + 76] for i in range(frames)])[..., None]
    made = _session(path.parent / "beside" / "embedding_model.onnx").run(None, {"input_1": windows})[0]
    return {name: made.reshape(1, frames, 96)}


def _bands(seed: int, path: Path, seconds: float = 1.0) -> np.ndarray:
    wave = (sound.speech(seconds, 16000, seed)[None] * 32767).astype(np.float32)
    made = _session(path.parent / "beside" / "melspectrogram.onnx").run(None, {"input": wave})[0]
    return made.reshape(-1, 32) / 10 + 2


def turn(seed: int, path: Path) -> Feed:
    """smart-turn: Whisper's features of eight seconds, [1, 80, 800]."""
    logs = sound.mel(sound.speech(8.1, 16000, seed), 16000, 400, 160, 80)[:800] / 10
    scaled = (np.maximum(logs, logs.max() - 8) + 4) / 4
    return {"input_features": scaled.T[None].astype(np.float32)}


def text_line(seed: int, path: Path, name: str = "x", width: int = 320) -> Feed:
    return {name: pictures.scaled(pictures.line(48, width, seed), 0.5, 0.5)}


def text_page(seed: int, path: Path) -> Feed:
    return {"x": pictures.scaled(pictures.page(160, 320, seed), 0.456, 0.225)}


def text_page_square(seed: int, path: Path) -> Feed:
    return {"x": pictures.scaled(pictures.page(224, 224, seed), 0.456, 0.225)}


def captcha(seed: int, path: Path) -> Feed:
    grey = pictures.line(64, 160, seed).mean(axis=2)
    return {"input1": (grey / 255).astype(np.float32)[None, None]}


def captcha_page(seed: int, path: Path) -> Feed:
    return {"images": pictures.page(416, 416, seed, 3).transpose(2, 0, 1)[None].astype(np.float32)}


def people(seed: int, path: Path) -> Feed:
    return {"images": pictures.scaled(pictures.scene(160, 160, seed), 0, 1)}


def face_tiles(seed: int, path: Path) -> Feed:
    """centerface as it is shipped: ten tiles of 32 by 32, values of 0 to 255."""
    tiles = [pictures.scene(96, 96, 10 * seed + i)[8:40, 32:64] for i in range(10)]
    return {"input.1": np.stack(tiles).transpose(0, 3, 1, 2).astype(np.float32)}


def frame(seed: int, path: Path, mark: bool = False) -> Feed:
    """RivaGAN: a frame of video, and the 32 bits that are to be hidden in it."""
    feed: Feed = {"frame": pictures.scaled(pictures.scene(96, 128, seed), 0.5, 0.5)[:, :, None]}
    if mark:
        feed["data"] = np.random.default_rng(seed).integers(0, 2, (1, 32)).astype(np.float32)
    return feed


def file_bytes(seed: int, path: Path) -> Feed:
    """magika: 1,024 bytes of the file's head and 1,024 of its end; 256 stands for none."""
    content = words.code(seed, int(np.random.default_rng(seed).integers(300, 5000)))
    feed = np.full((1, 2048), 256, np.int32)
    head, tail = content[:1024], content[-1024:]
    feed[0, : len(head)], feed[0, 2048 - len(tail) :] = list(head), list(tail)
    return {"bytes": feed}


def hebrew(seed: int, path: Path) -> Feed:
    """nakdimon: codes of letters; a space and marks among them."""
    random = np.random.default_rng(seed)
    return {"input_1": random.integers(1, 40, (1, int(random.integers(20, 90)))).astype(np.float32)}


def arabic(seed: int, path: Path) -> Feed:
    """tashkeel: codes of letters and of the marks that are known already (none)."""
    random = np.random.default_rng(seed)
    size = int(random.integers(20, 80))
    return {
        "char_inputs": random.integers(1, 36, (1, size)).astype(np.int64),
        "diac_inputs": np.zeros((1, size), np.int64),
        "input_lengths": np.array([size], np.int64),
    }


def reading(seed: int, path: Path) -> Feed:
    """The trees that choose how a Japanese word is read: six features, each one of some, as ones and zeros."""
    random = np.random.default_rng(seed)
    return {"input": (random.random((1, 131)) < 0.05).astype(np.float32)}


vad_without_rate = partial(vad, rate=False)
