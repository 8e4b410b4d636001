"""Speech-like and music-like sound, made from a seed: what a recogniser meets, without a recording
of anybody."""

import numpy as np

Wave = np.ndarray[tuple[int], np.dtype[np.float32]]

# First three formants in Hz of vowels as they are commonly tabulated for an adult voice.
_VOWELS = (
    (730, 1090, 2440),
    (270, 2290, 3010),
    (300, 870, 2240),
    (530, 1840, 2480),
    (570, 840, 2410),
    (660, 1720, 2410),
)


def speech(seconds: float, rate: int, seed: int) -> Wave:
    """float32 [seconds * rate] within -1..1: syllables of vowels and hisses with pauses between
    them, over a faint noise."""
    random = np.random.default_rng(seed)
    length = round(seconds * rate)
    sound = random.normal(0, random.uniform(0.0005, 0.004), length)
    at, pitch = int(random.uniform(0, 0.15) * rate), random.uniform(85, 230)
    while at < length:
        size = min(int(random.uniform(0.08, 0.3) * rate), length - at)
        if random.random() < 0.2:
            at += size  # a pause
            continue
        voiced = random.random() < 0.8
        source = (
            _pulses(size, rate, pitch * random.uniform(0.9, 1.15))
            if voiced
            else random.normal(0, 0.3, size)
        )
        peaks = _VOWELS[random.integers(len(_VOWELS))] if voiced else (3800, 5200, 6600)
        sound[at : at + size] += (
            _shaped(source, rate, peaks) * np.hanning(size) * random.uniform(0.1, 0.6)
        )
        at += size
    return np.clip(sound, -1, 1).astype(np.float32)


def music(seconds: float, rate: int, seed: int) -> Wave:
    """float32 [seconds * rate] within -1..1: notes of a scale, each with overtones that decay."""
    random = np.random.default_rng(seed)
    length = round(seconds * rate)
    sound = random.normal(0, 0.0005, length)
    for _ in range(max(1, int(4 * seconds))):
        at = int(random.integers(0, length))
        time = np.arange(length - at) / rate
        pitch = 440 * 2 ** ((random.integers(36, 84) - 69) / 12)
        for overtone in range(1, 7):
            if pitch * overtone < rate / 2:
                sound[at:] += (
                    0.3
                    / overtone
                    * np.exp(-time * (2 + overtone))
                    * np.sin(2 * np.pi * pitch * overtone * time)
                )
    return np.clip(sound * 0.7, -1, 1).astype(np.float32)


def mel(sound: Wave, rate: int, size: int, hop: int, bands: int) -> np.ndarray:
    """float32 [frames, bands]: power in bands spaced as hearing is, in dB."""
    power = spectrum(sound, size, hop)
    edges = 700 * (
        10 ** (np.linspace(0, 2595 * np.log10(1 + rate / 2 / 700), bands + 2) / 2595) - 1
    )
    at = np.linspace(0, rate / 2, power.shape[1])
    up = (at[None] - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    down = (edges[2:, None] - at[None]) / (edges[2:] - edges[1:-1])[:, None]
    banks = np.maximum(0, np.minimum(up, down))
    return (10 * np.log10(np.maximum(power @ banks.T, 1e-10))).astype(np.float32)


def spectrum(sound: Wave, size: int, hop: int) -> np.ndarray:
    """float64 [frames, size // 2 + 1]: power of windowed frames."""
    frames = np.lib.stride_tricks.sliding_window_view(sound.astype(np.float64), size)[::hop]
    return np.abs(np.fft.rfft(frames * np.hanning(size))) ** 2


def _pulses(size: int, rate: int, pitch: float) -> np.ndarray:
    phase = np.cumsum(
        np.full(size, pitch / rate) * (1 + 0.02 * np.sin(np.arange(size) / rate * 2 * np.pi * 5))
    )
    return np.diff(np.floor(phase), prepend=0.0) * 8 - 8 * pitch / rate


def _shaped(source: np.ndarray, rate: int, peaks: tuple[int, ...]) -> np.ndarray:
    at = np.fft.rfftfreq(source.size, 1 / rate)
    shape = sum(
        1 / (1 + ((at - peak) / (60 + 0.08 * peak)) ** 2) / (1 + i) for i, peak in enumerate(peaks)
    )
    shaped = np.fft.irfft(np.fft.rfft(source) * shape, source.size)
    return shaped / max(1e-9, float(np.abs(shaped).max()))
