"""Read what a user gives as inputs: Polygraphy JSON, npz, npy, data loader scripts, images. Each file gives a list of feeds."""

import importlib.util
import sys
import traceback
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from engines.data import polygraphy

Feed = dict[str, np.ndarray]
IMAGES = frozenset({".png", ".jpg", ".jpeg"})
MOST_FEEDS = 10_000  # of a script that never ends


class InputProblem(Exception):
    """Inputs that cannot be read or do not fit; the message is one sentence (exit code 2)."""


def read(source: str, inputs: dict[str, tuple[int, ...] | None]) -> list[Feed]:
    """The feeds of one source: a path, or ``script.py:function``. ``inputs``: the model's inputs and their declared shapes (-1 symbolic), for files that
    hold one bare array. Raises InputProblem."""
    path, function = _split(source)
    if not path.exists():
        raise InputProblem(f"The input file {path} does not exist.")
    try:
        if path.suffix == ".py":
            return _script(path, function or "load_data")
        if path.suffix == ".npz":
            return [_npz(path)]
        if path.suffix == ".npy":
            return [{_name_for(path, inputs): np.load(path, allow_pickle=False, mmap_mode="r")}]
        if path.suffix.lower() in IMAGES:
            return [_image(path, inputs)]
        return polygraphy.read_inputs(path)
    except (ValueError, EOFError, zipfile.BadZipFile) as problem:
        raise InputProblem(f"The input file {path} cannot be read: {_sentence(problem)}") from None
    except OSError as problem:
        raise InputProblem(f"The input file {path} cannot be read: {problem.strerror or problem}.") from None


def _split(source: str) -> tuple[Path, str]:
    head, colon, tail = source.rpartition(":")
    if colon and head.endswith(".py") and tail.isidentifier():
        return Path(head), tail
    return Path(source), ""


def _npz(path: Path) -> Feed:
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def _name_for(path: Path, inputs: dict[str, tuple[int, ...] | None]) -> str:
    """The input that a file with one array is for: the one of its own name, else the only one."""
    if path.stem in inputs:
        return path.stem
    if len(inputs) == 1:
        return next(iter(inputs))
    raise InputProblem(
        f"{path} holds one array, and the model has the inputs {', '.join(inputs)}: name the file after its input, such as {next(iter(inputs))}{path.suffix}."
    )


def _image(path: Path, inputs: dict[str, tuple[int, ...] | None]) -> Feed:
    """An image as float32 in 0..1, NCHW or NHWC as the input's declared shape says, resized where that shape fixes a size."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise InputProblem(f"{path} is an image; reading it needs Pillow: pip install 'narrowdown[images]'.") from None
    fitting = {n: s for n, s in inputs.items() if s is not None and len(s) == 4}
    name = path.stem if path.stem in fitting else next(iter(fitting), "")
    if not name:
        raise InputProblem(f"{path} is an image, and no input of the model has four dimensions to take it.")
    shape = fitting[name] or ()
    last = shape[3] in (1, 3) and shape[1] not in (1, 3)
    channels, height, width = (shape[3], shape[1], shape[2]) if last else (shape[1], shape[2], shape[3])
    try:
        picture = Image.open(path).convert("L" if channels == 1 else "RGB")
    except (UnidentifiedImageError, OSError) as problem:
        raise InputProblem(f"{path} is no image that Pillow can read: {problem}.") from None
    if height > 0 and width > 0:
        picture = picture.resize((width, height))
    pixels = np.asarray(picture, np.float32) / np.float32(255)
    pixels = pixels[..., None] if pixels.ndim == 2 else pixels
    return {name: pixels[None] if last else np.moveaxis(pixels, -1, 0)[None]}


def _script(path: Path, function: str) -> list[Feed]:
    """Call ``function`` of a data loader script: it returns or yields dicts of arrays, as for ``polygraphy --data-loader-script``."""
    spec = importlib.util.spec_from_file_location(f"_inputs_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise InputProblem(f"{path} is not a Python script.")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
        loader = getattr(module, function, None)
        if not callable(loader):
            raise InputProblem(f"{path} has no function {function}().")
        return [_checked(item, path, function, i) for i, item in zip(range(MOST_FEEDS), loader(), strict=False)]
    except InputProblem:
        raise
    except (Exception, SystemExit) as problem:
        raise InputProblem(f"{_place(path)} raised {type(problem).__name__}: {_sentence(problem)}") from None
    finally:
        sys.path.remove(str(path.parent))


def _checked(item: Any, path: Path, function: str, position: int) -> Feed:
    if not isinstance(item, dict):
        raise InputProblem(
            f"{function}() in {path} gave a {type(item).__name__} as feed {position}; it must give dicts of arrays by input name."
        )
    return {str(k): np.asarray(v) for k, v in item.items()}


def _place(path: Path) -> str:
    """The script with the line in it that was reached last."""
    frames = traceback.extract_tb(sys.exc_info()[2])
    line = next((f.lineno for f in reversed(frames) if f.filename == str(path)), None)
    return f"{path}, line {line}," if line else str(path)


def _sentence(problem: BaseException) -> str:
    text = (str(problem).strip().splitlines() or [type(problem).__name__])[0]
    return text if text.endswith(".") else f"{text}."
