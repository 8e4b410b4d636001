"""Pictures made from a seed: lines of text on paper, faces and scenes of simple shapes."""

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from campaigns.field.inputs.words import sentence

Picture = np.ndarray[tuple[int, int, int], np.dtype[np.uint8]]


def page(height: int, width: int, seed: int, lines: int = 4) -> Picture:
    """uint8 [height, width, 3]: dark text on light paper, a little turned, blurred and noisy as a
    photo is."""
    random = np.random.default_rng(seed)
    paper = tuple(int(x) for x in random.integers(200, 256, 3))
    image = Image.new("RGB", (width, height), paper)
    draw = ImageDraw.Draw(image)
    size = max(10, int(height / lines * random.uniform(0.5, 0.75)))
    font = ImageFont.load_default(size)
    for line in range(lines):
        ink = tuple(int(x) for x in random.integers(0, 110, 3))
        at = (int(random.uniform(0, 0.1) * width), int(height * line / lines))
        draw.text(at, sentence(random, int(random.integers(2, 6))), fill=ink, font=font)
    return _taken(image, random, paper)


def line(height: int, width: int, seed: int) -> Picture:
    """uint8 [height, width, 3]: one line of text that fills the height."""
    return page(height, width, seed, 1)


def text(height: int, width: int, seed: int, letters: str) -> Picture:
    """uint8 [height, width, 3]: these letters, a little apart and crossed by lines, as captchas
    have them."""
    random = np.random.default_rng(seed)
    paper = tuple(int(x) for x in random.integers(190, 256, 3))
    image = Image.new("RGB", (width, height), paper)
    draw = ImageDraw.Draw(image)
    for i, letter in enumerate(letters):
        ink = tuple(int(x) for x in random.integers(0, 120, 3))
        at = (
            int(width * (i + random.uniform(0.1, 0.4)) / len(letters)),
            int(height * random.uniform(0.05, 0.3)),
        )
        draw.text(
            at,
            letter,
            fill=ink,
            font=ImageFont.load_default(int(height * random.uniform(0.55, 0.7))),
        )
    for _ in range(3):
        ends = [tuple(int(v) for v in random.integers(0, (width, height))) for _ in range(2)]
        draw.line(ends, fill=tuple(int(x) for x in random.integers(60, 180, 3)))
    return _taken(image, random, paper)


def scene(height: int, width: int, seed: int) -> Picture:
    """uint8 [height, width, 3]: figures with heads, limbs and faces before a ground that shades
    from one colour into another."""
    random = np.random.default_rng(seed)
    top, bottom = random.integers(40, 256, 3), random.integers(0, 200, 3)
    ground = (
        top
        + (bottom - top) * np.linspace(0, 1, height)[:, None, None]
        + np.zeros((height, width, 3))
    )
    image = Image.fromarray(ground.astype(np.uint8))
    draw = ImageDraw.Draw(image)
    for _ in range(int(random.integers(1, 4))):
        size = random.uniform(0.12, 0.3) * height
        x, y = random.uniform(0.2, 0.8) * width, random.uniform(0.2, 0.45) * height
        skin = tuple(int(v) for v in np.array([230, 185, 155]) * random.uniform(0.4, 1.1) % 256)
        cloth = tuple(int(v) for v in random.integers(0, 256, 3))
        draw.rounded_rectangle(
            (x - size, y + 0.8 * size, x + size, y + 3 * size), 0.3 * size, fill=cloth
        )
        draw.ellipse((x - 0.7 * size, y - size, x + 0.7 * size, y + size), fill=skin)
        for side in (-1, 1):
            eye = x + side * 0.28 * size
            draw.ellipse(
                (eye - 0.1 * size, y - 0.3 * size, eye + 0.1 * size, y - 0.12 * size),
                fill=(20, 20, 30),
            )
            draw.line(
                (x + side * size, y + size, x + side * 1.5 * size, y + 2.4 * size),
                fill=skin,
                width=3,
            )
        draw.arc(
            (x - 0.35 * size, y + 0.1 * size, x + 0.35 * size, y + 0.6 * size),
            10,
            170,
            fill=(140, 40, 50),
            width=2,
        )
    return _taken(image, random, (0, 0, 0))


def scaled(picture: Picture, mean: float, deviation: float) -> np.ndarray:
    """float32 [1, 3, height, width]: the picture's values within 0..1, less the mean, over the
    deviation."""
    return (
        ((picture.astype(np.float32) / 255 - mean) / deviation)
        .transpose(2, 0, 1)[None]
        .astype(np.float32)
    )


def _taken(image: Image.Image, random: np.random.Generator, fill: tuple[int, ...]) -> Picture:
    image = image.rotate(
        float(random.uniform(-2, 2)), resample=Image.Resampling.BILINEAR, fillcolor=fill
    )
    image = image.filter(ImageFilter.GaussianBlur(float(random.uniform(0, 0.8))))
    noisy = np.asarray(image).astype(np.float64) + random.normal(
        0, 3, (*np.asarray(image).shape[:2], 3)
    )
    return np.clip(noisy, 0, 255).astype(np.uint8)
