"""Input files of every kind, read one feed at a time. What a file holds is not yet matched with the
model: see ``samples``.

Sources are paths: Polygraphy's JSON, ``.npz`` and ``.safetensors`` (arrays by input name, one
feed), ``.npy``, ``.pb``, raw ``.bin`` and images (one input each, ``NAME=path`` names it), folders
of JSON, archives, arrays or images, ONNX's test data (folders ``test_data_set_0`` with
``input_0.pb``, or one that holds such folders; one feed each), and data loader scripts
``path.py[:function]`` that yield feeds.
"""

import contextlib
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from narrowdown.engines import installed
from narrowdown.engines.array import Array
from narrowdown.engines.data import InputProblem, packed, polygraphy, scripting
from narrowdown.engines.data.golden_files import data_sets, sort_by_number
from narrowdown.engines.graph.load import np_dtype
from narrowdown.engines.nearest import suggest_or_list
from narrowdown.engines.sources import IMAGES, INPUT_KINDS, RAW, split_function
from narrowdown.engines.store import decoding, regular

_SAFETENSORS = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2", "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "U64": "uint64", "U32": "uint32",
    "U16": "uint16", "U8": "uint8", "BOOL": "bool",
}  # fmt: skip
# Of one script: a loader without an end must neither fill the disk nor keep every probe busy for
# hours.
_MOST_FEEDS = 1_000

_KIND = "data loader"


class Given(NamedTuple):
    """Arrays of one feed as the file holds them. ``alone``: one array for one input; other files
    complete the feed; its name is empty where neither the user nor the file's name tells it.
    ``warning``: what is to be said about the source from here on."""

    source: str  # for people: a file's name
    arrays: Mapping[str, Array]
    alone: bool = False
    image: bool = False
    raw: bool = False  # bytes alone
    warning: str = ""


def read(source: str, names: Iterable[str], folder: str = "") -> Iterator[Given]:
    """The feeds of a source. ``names``: the model's inputs, to tell ``NAME=path`` and file names.
    ``folder``: where a script runs, if it is there, else the script's own folder. Raises
    ``InputProblem``."""
    known = tuple(names)
    name, path = _split_name(source, known)
    path, function = split_function(path)
    file = Path(path)
    kind, named = file.suffix.lower(), name or (file.stem if file.stem in known else "")
    if wrong_kind := regular.fault(path):
        raise InputProblem(f"'{path}' {wrong_kind}.")
    if not file.exists():
        wrong, equals, rest = path.partition("=")
        if equals and Path(rest).exists():
            raise InputProblem(f"The model has no input '{wrong}'.{suggest_or_list(wrong, known)}")
        raise InputProblem(f"There is no inputs file '{path}'.")
    if kind == ".py":
        yield from from_script(
            file,
            function or "load_data",
            folder if folder and Path(folder).is_dir() else str(file.absolute().parent),
        )
    elif file.is_dir():
        yield from _read_folder(file, name, known)
    elif kind == ".pb":
        found, array = _read_test_tensor(file, known)
        yield Given(file.name, {name or (found if found in known else ""): array}, alone=True)
    elif kind in RAW:
        yield Given(file.name, {named: np.fromfile(file, np.uint8)}, alone=True, raw=True)
    elif kind == ".json":
        yield from _read_polygraphy(file)
    elif kind in ARRAYS:
        yield Given(file.name, ARRAYS[kind](file))
    elif kind == ".npy":
        yield Given(file.name, {named: read_npy(file)}, alone=True)
    elif kind in IMAGES:
        yield Given(file.name, {named: _read_image(file)}, alone=True, image=True)
    else:
        raise InputProblem(
            f"'{file.name}' is not a kind of inputs file that can be read; give one of {', '.join(INPUT_KINDS)}."
        )


def _read_folder(folder: Path, name: str, known: tuple[str, ...]) -> Iterator[Given]:
    """Test data as ONNX keeps it; else a file a feed; else Polygraphy's, in its own parts."""
    if sets := data_sets(folder):
        for place in sets:
            tensors = [_read_test_tensor(tensor, known) for tensor in place.glob("input_*.pb")]
            yield Given(place.name, dict(tensors))
    elif held := _list_held(folder):
        for one in held:
            yield from read(f"{name}={one}" if name else str(one), known)
    else:
        yield from _read_polygraphy(folder)


def _read_polygraphy(place: Path) -> Iterator[Given]:
    for part in polygraphy.list_parts(place):
        for feed in polygraphy.read_inputs(part):
            yield Given(part.name, feed)


def _list_held(folder: Path) -> list[Path]:
    """The files of a folder that are inputs, all of one kind, 9 before 10: images, or arrays; none
    where it is a folder of Polygraphy's JSON, whatever arrays lie beside that."""
    held = sorted((p.absolute() for p in folder.iterdir() if p.is_file()), key=sort_by_number)
    kinds = (
        [IMAGES]
        if any(p.suffix.lower() == ".json" for p in held)
        else [IMAGES, *((kind,) for kind in (*ARRAYS, ".npy"))]
    )
    return next(
        (found for kind in kinds if (found := [p for p in held if p.suffix.lower() in kind])), []
    )


def _split_name(source: str, known: tuple[str, ...]) -> tuple[str, str]:
    """(input name, path) of ``NAME=path``. A path that holds ``=`` itself stays a path unless an
    input has that name."""
    name, equals, path = source.partition("=")
    return (name, path) if equals and name in known and not name.startswith("/") else ("", source)


def _read_test_tensor(file: Path, known: tuple[str, ...]) -> tuple[str, Array]:
    """(input, value) of a TensorProto: the name in it, else the input at the place that the file's
    name tells, else ""."""
    name, value = read_tensorproto(file)
    place = re.fullmatch(r"input_(\d{1,4})", file.stem)
    if name in known or not place or int(place[1]) >= len(known):
        return name, value
    return known[int(place[1])], value


def read_npy(file: Path) -> Array:
    """The array, mapped from the file and not to be written to. Raises ``InputProblem``."""
    try:
        loaded = np.load(file, mmap_mode="r", allow_pickle=False)
    except (
        Exception
    ) as error:  # numpy's header goes through Python's tokenizer, which has exceptions of its own
        raise InputProblem(_say_unreadable(file, "a numpy array", error)) from error
    if not isinstance(loaded, np.ndarray):
        raise InputProblem(f"'{file.name}' is an archive of arrays; give it the ending .npz.")
    return loaded


def read_npz(file: Path) -> dict[str, Array]:
    """Name -> array, all in memory. Raises ``InputProblem``, also where they are more than memory
    should hold."""
    why = "is a single array; give it the ending .npy"
    try:
        loaded = np.load(file, allow_pickle=False)
        if not isinstance(loaded, np.ndarray):
            why = f"{packed.too_large(file)}; give each array as one .npy file"
            with loaded:
                if not packed.too_large(file):
                    return {name: loaded[name] for name in loaded.files}
    except Exception as error:  # zipfile and zlib have exceptions of their own
        raise InputProblem(_say_unreadable(file, "an archive of numpy arrays", error)) from error
    raise InputProblem(f"'{file.name}' {why}.")


def read_safetensors(file: Path) -> dict[str, Array]:
    """Name -> array, mapped from the file and not to be written to. Raises ``InputProblem``."""
    try:
        with regular.opened(file) as opened:
            size = min(
                int.from_bytes(opened.read(8), "little"), regular.size(file)
            )  # of a header, unless it is another file
            header = decoding.decode(opened.read(size))
        data, arrays = np.memmap(file, np.uint8, "r", offset=8 + size), dict[str, Array]()
        for name, told in header.items():
            if name != "__metadata__":
                first, last = told["data_offsets"]
                arrays[name] = (
                    data[first:last]
                    .view(np_dtype(_SAFETENSORS[told["dtype"]]))
                    .reshape(told["shape"])
                )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputProblem(
            f"'{file.name}' cannot be read as safetensors: {scripting.say_error(error)} Save it again."
        ) from error
    return arrays


# What holds the arrays of one feed by name.
ARRAYS: Mapping[str, Callable[[Path], dict[str, Array]]] = {
    ".npz": read_npz,
    ".safetensors": read_safetensors,
}


def _say_unreadable(file: Path, kind: str, error: Exception) -> str:
    """Why numpy does not open a file, as a sentence."""
    if isinstance(error, OSError) and error.strerror:
        return f"'{file.name}' cannot be read: {error.strerror}."
    if not file.stat().st_size:
        return f"'{file.name}' is empty (0 bytes); save the arrays again."
    with regular.opened(file) as opened:
        pickled = opened.read(1) == b"\x80"
    if pickled or any(word in str(error) for word in ("Object arrays", "Python objects")):
        return (
            f"'{file.name}' holds pickled Python objects, which are not opened as that could run code; "
            "save plain arrays of numbers or strings."
        )
    if "allow_pickle" in str(error):  # numpy takes whatever it does not know for a pickle
        return f"'{file.name}' cannot be read as {kind}: it is something else. Save it again."
    return f"'{file.name}' cannot be read as {kind}: {scripting.say_error(error)} Save it again."


def _read_image(file: Path) -> Array:
    """uint8 [height, width, 4]: red, green, blue, alpha."""
    try:
        from PIL import Image
    except ImportError as error:
        raise InputProblem(f"'{file.name}' is an image. {installed.lacking(error)}") from error
    try:
        with Image.open(file) as image:
            return np.asarray(image.convert("RGBA"), np.uint8)
    except Exception as error:  # every format's reader has its own
        raise InputProblem(
            f"'{file.name}' cannot be read as an image: {scripting.say_error(error)}"
        ) from error


def from_script(file: Path, function: str, folder: str) -> Iterator[Given]:
    """Feeds of a data loader script."""
    with scripting.open_script(_KIND, file, function, folder) as loader:
        yield from _iterate_script(file, function, loader, folder)


def _iterate_script(file: Path, function: str, loader: Any, folder: str) -> Iterator[Given]:
    made = scripting.call_function(_KIND, file, function, loader, folder, "no arguments")
    try:
        feeds = iter([made] if isinstance(made, Mapping) else made)
    except TypeError:
        what = "nothing" if made is None else f"a value of type {type(made).__name__}"
        raise InputProblem(
            f"{function}() in '{file.name}' returned {what}; let it yield dicts of arrays by input name."
        ) from None
    size = 0
    for count in itertools.count():
        try:
            with contextlib.chdir(folder):
                feed = next(feeds)
        except StopIteration:
            if not count:
                raise InputProblem(f"{function}() in '{file.name}' gave no feed at all.") from None
            return
        except scripting.ENDS as error:
            raise InputProblem(scripting.blame_line(_KIND, file, error)) from error
        if count == _MOST_FEEDS or size > packed.most_bytes():
            yield Given(
                file.name,
                {},
                warning=f"{function}() in '{file.name}' gives more than {count:,} feeds: the first {count:,} are used.",
            )
            return
        if not isinstance(feed, Mapping):
            raise InputProblem(
                f"{function}() in '{file.name}' must yield dicts of arrays by input name, but feed {count} is "
                f"of type {type(feed).__name__}."
            )
        arrays = {str(k): _as_array(v, str(k), file) for k, v in feed.items()}
        size += sum(array.nbytes for array in arrays.values())
        yield Given(file.name, arrays)


def _as_array(value: Any, name: str, file: Path) -> Array:
    try:
        array = np.asarray(value)
    except Exception as error:
        raise InputProblem(
            f"'{name}' from '{file.name}' cannot be turned into an array: {scripting.say_error(error)}"
        ) from error
    if array.dtype == object and not all(isinstance(x, str) for x in array.ravel()):
        raise InputProblem(f"'{name}' from '{file.name}' is not an array of numbers or strings.")
    return array


_ELSEWHERE = onnx.TensorProto.EXTERNAL


def read_tensorproto(path: Path) -> tuple[str, np.ndarray[Any, Any]]:
    """(the tensor's name, "" where it has none, its value). Raises ``InputProblem`` for what is no
    TensorProto, sequences included."""
    tensor = onnx.TensorProto()
    try:
        tensor.ParseFromString(regular.read(path, regular.MODEL))
        value = None if tensor.data_location == _ELSEWHERE else onnx.numpy_helper.to_array(tensor)
    except OSError as error:
        raise InputProblem(f"'{path.name}' cannot be read: {error.strerror or error}.") from error
    except (DecodeError, ValueError, TypeError, KeyError, IndexError) as error:
        raise InputProblem(
            f"'{path.name}' holds no single tensor (a TensorProto), so it is not read."
        ) from error
    if value is None:
        raise InputProblem(
            f"'{path.name}' names another file for its values; save the tensor with them in it."
        )
    return tensor.name, value
