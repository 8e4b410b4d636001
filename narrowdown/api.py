"""Narrowdown from Python: one function, for a notebook or a script. It drives the session that the
command line drives."""

from __future__ import annotations

import hashlib
import html
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from narrowdown.wizard import Exit, Refusal
from narrowdown.wizard.cli.arguments import parse
from narrowdown.wizard.cli.by_name import words_of
from narrowdown.wizard.cli.entry import plain_words
from narrowdown.wizard.cli.run import walk_through
from narrowdown.wizard.report.document import to_json
from narrowdown.wizard.report.read import Reading, read
from narrowdown.wizard.report.summary import summary
from narrowdown.wizard.session import folder as folders, of_system

if TYPE_CHECKING:
    import pandas
    from numpy.typing import ArrayLike
    from onnx import ModelProto

Table: TypeAlias = "pandas.DataFrame | list[dict[str, Any]]"
Sample: TypeAlias = "Mapping[str, ArrayLike]"
Place: TypeAlias = "str | os.PathLike[str]"

OF_FILES = ("decisive", "bundle")  # tables of a step that name files of the session, and no results


class NarrowdownError(Exception):
    """What kept a session from its end, in a sentence. ``code``: the exit code that the command
    line has for it; ``session``: the session's folder, None where none was begun."""

    def __init__(self, message: str, code: int, session: Path | None = None) -> None:
        super().__init__(message)
        self.code, self.session = code, session

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows in place of a traceback: the sentence says all."""
        return [f"NarrowdownError: {self}"]


class Report:
    """What a session has found.

    ``session``: its folder; ``report.html`` and ``case`` lie in there. ``exit_code``: as of the
    command line: 0 found, 10 no failure seen, ... ``facts``: all of ``report --format json``
    (docs/json.md), as plain data. ``tables``: by name, each a pandas DataFrame where pandas is
    installed, else a list of dicts: the lists of ``facts`` that hold rows (``culprits``, ``route``,
    ``layers``, ...), and what the steps measured (``layerwise.tensors``, ...). Errors are shares (1
    is 100 %) by the metric, times are seconds.
    """

    def __init__(self, session: Place, exit_code: int = 0) -> None:
        """The report of a session's folder. Raises NarrowdownError where that is no session."""
        self.session, self.exit_code = Path(session), exit_code
        try:
            self._reading = read(self.session)
            found = self._reading.report()
        except Refusal as refusal:
            raise NarrowdownError(str(refusal), refusal.code, self.session) from None
        self._summary = summary(found)
        self.facts: dict[str, Any] = json.loads(to_json(found))

    @property
    def verdict(self) -> str:
        """``worked-around``, ``minimal-case``, ``not-reproduced``, ...: docs/json.md lists them."""
        return str(self.facts["verdict"])

    @property
    def cause(self) -> str:
        """The named cause of the first culprit; "" where there is none."""
        return str(self.facts["cause"])

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of the nodes of the first minimal case."""
        return tuple(self.facts["nodes"])

    @property
    def workaround(self) -> dict[str, Any] | None:
        """What makes the model right on this engine; ``holds`` says whether it does so on samples
        that it was not made on. None where there is none."""
        found: dict[str, Any] | None = self.facts["workaround"]
        return found

    @property
    def tables(self) -> dict[str, Table]:
        return {name: _table(rows) for name, rows in _rows(self.facts, self._reading)}

    def __str__(self) -> str:
        return "\n".join([*self._summary, f"  session: {self.session}"])

    def __repr__(self) -> str:
        return f"<Report {self.verdict}: {self.session}>"

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def run(
    model: Place | ModelProto,
    inputs: Place | Sample | Sequence[Place] | Sequence[Sample] | None = None,
    engine: str = "",
    *,
    reference: str = "",
    session: Place | None = None,
    **options: Any,
) -> Report:
    """Find why ``engine`` is wrong on ``model``; what ``narrowdown run`` does.

    ``model``: an ONNX file, or a ModelProto of less than 2 GiB. ``inputs``: real samples: a file or
    several (docs/inputs.md), a dict of arrays by input name (one sample), or a list of such dicts;
    shapes and types are those of the model's inputs; none: random ones. ``engine``, ``reference``:
    engines as on the command line. ``session``: where the session lives; default: a new folder
    below ``~/.local/state/narrowdown``. ``options``: further ones of ``narrowdown run``, ``_`` for
    ``-``: ``tolerance=0.01``, ``input_shapes={"x": (1, 3, 224, 224)}``, ``budget="10m"``,
    ``display="plain"`` to see each step. What you name here may run, as if you had typed it.

    Takes as long as the command: seconds to hours. Raises NarrowdownError where no end is reached:
    what was given does not fit (``code`` 2), something is missing (4), a person is needed (3),
    stopped (130). Everything measured is kept; the same call with ``session`` goes on.
    """
    given = {"engine": engine, "reference": reference, "session": session, **options}
    try:
        files = _input_files(inputs)
        words = words_of("run", _model_file(model), {"inputs": files, "display": "none", **given})
        plain_words(words)
        code, place = walk_through(parse(words))
        state = folders.load(place)
    except Refusal as refusal:
        raise NarrowdownError(str(refusal), refusal.code) from None
    except OSError as error:
        raise NarrowdownError(of_system(error), Exit.MISSING) from error
    if code and not state.end:
        why = state.closed.reason if state.closed else ""
        said = f"{why or 'The session did not come to its end'} (session {place})"
        raise NarrowdownError(said, code, place)
    return Report(place, code)


def _model_file(model: Place | ModelProto) -> str:
    if isinstance(model, str | os.PathLike):
        return os.fspath(model)
    try:
        content = model.SerializeToString()
    except AttributeError:
        raise NarrowdownError(
            f"model: '{type(model).__name__}' is no ONNX model; give a path or an onnx.ModelProto.",
            Exit.BAD_USAGE,
        ) from None
    except Exception as error:  # protobuf has one kind for it, and its Python form another
        raise NarrowdownError(
            f"model: it cannot be written as one file ({error}); save it with external data and give its path.",
            Exit.BAD_USAGE,
        ) from None
    name = f"{hashlib.sha256(content).hexdigest()[:16]}.onnx"
    return str(_kept(name, lambda part: part.write_bytes(content)))


def _input_files(inputs: object) -> list[str]:
    """Paths as they are; arrays as files, a sample each."""
    if inputs is None:
        return []
    if isinstance(inputs, str | os.PathLike):
        return [os.fspath(inputs)]
    samples = [inputs] if isinstance(inputs, Mapping) else inputs
    if not isinstance(samples, Sequence):
        raise NarrowdownError(
            f"inputs: '{type(inputs).__name__}' is neither paths nor arrays by name.",
            Exit.BAD_USAGE,
        )
    return [
        _sample_file(each) if isinstance(each, Mapping) else os.fspath(each) for each in samples
    ]


def _sample_file(sample: Mapping[str, Any]) -> str:
    import numpy as np

    from narrowdown.engines.data.arrays import write_npz

    arrays, digest = {}, hashlib.sha256()
    for name, value in sample.items():
        try:
            array = np.ascontiguousarray(value)
        except Exception as error:  # of a tensor on a GPU: whatever its package raises
            raise NarrowdownError(
                f"inputs: '{name}' is no array: {error}", Exit.BAD_USAGE
            ) from None
        if array.dtype.hasobject:
            raise NarrowdownError(
                f"inputs: '{name}' is no array of numbers, but of Python objects; give it one dtype.",
                Exit.BAD_USAGE,
            )
        arrays[name] = array
        digest.update(repr((name, array.dtype.str, array.shape)).encode())
        digest.update(array.tobytes())
    return str(_kept(f"{digest.hexdigest()[:16]}.npz", lambda part: write_npz(part, arrays)))


def _kept(name: str, write: Callable[[Path], object]) -> Path:
    """What was given in memory, as a file that commands in the report can name. Beside the
    sessions; the same content is one file."""
    place = folders.home().parent / "given" / name
    if not place.exists():
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = place.with_name(f"{os.getpid()}-{name}")
        write(part)
        part.replace(place)
    return place


def _rows(facts: Mapping[str, Any], reading: Reading) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    for name, value in facts.items():
        if isinstance(value, list) and value and all(isinstance(row, dict) for row in value):
            yield name, value
    for visit in reading.state.route:
        for name, digest in visit.tables.items():
            if name not in OF_FILES and (rows := reading.table(digest)):
                yield f"{visit.step}.{name}", [dict(row) for row in rows]


def _table(rows: list[dict[str, Any]]) -> Table:
    try:
        import pandas
    except ImportError:
        return rows
    return pandas.DataFrame(rows)
