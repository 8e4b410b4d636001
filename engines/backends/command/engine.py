"""A program of the user's own in a worker: started anew for each run, in a fresh folder, with the
environment of checkers. PyTorch, which takes seconds to start, is started once."""

import contextlib
import hashlib
import os
import re
import shlex
import shutil
import signal
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import numpy as np
import onnx

from narrowdown.engines import options
from narrowdown.engines.array import Array
from narrowdown.engines.backends import machine
from narrowdown.engines.backends.base import (
    BuildRequest,
    EngineFault,
    EngineInfo,
    EngineMissing,
    check_names,
    list_capabilities,
)
from narrowdown.engines.backends.command import DECLARATION, TORCH
from narrowdown.engines.backends.marks import with_outputs
from narrowdown.engines.checker import command
from narrowdown.engines.checker.private_copies import run_agreed
from narrowdown.engines.data import InputProblem, files, held, polygraphy
from narrowdown.engines.data.arrays import widen_for_file, write_npy, write_npz
from narrowdown.engines.faults import signal_name
from narrowdown.engines.graph import ModelProblem, external, protos, schema
from narrowdown.engines.graph.standing_alone import write_with_weights
from narrowdown.engines.graph.typed import to_precision
from narrowdown.engines.spec import EngineSpec

CANNOT = 69  # the exit status that says "I cannot do this model": EX_UNAVAILABLE of sysexits.h
_STORAGE = {"fp16": "float16", "bf16": "bfloat16", "fp64": "float64"}
_ASKING = 60.0  # seconds to print a version
_KINDS = {o.name: o.what for o in (*DECLARATION.options, *TORCH.options) if o.type == "command"}
_HOLE = re.compile(r"\{(model|inputs|outputs|engine|dir)\}")
_UNSUPPORTED = re.compile(
    r"not[ _-]?(?:yet )?(?:implemented|supported)|unsupported"
    r"|(?:unknown|unrecognized|no such) (?:op|node|layer)|\b(?:op|node|layer)\w* .{0,120}\bunknown",
    re.IGNORECASE,
)
_NO_MEMORY = re.compile(
    r"bad_?alloc|out of memory|MemoryError|cannot allocate memory", re.IGNORECASE
)


class Built:
    """A model that the program is given with each run, and what its build command made of it."""

    def __init__(self, program: "Program", model: onnx.ModelProto) -> None:
        """``model``: what the program is given, weights outside."""
        self.model = model
        self.facts: Mapping[str, Any] = {}
        self._program = program
        self._types = schema.element_types(model)
        self.folder = Path(tempfile.mkdtemp(prefix="narrowdown-"))  # where the model lies
        # Removes it. Who drops this without closing it, for an error on the way say, leaves nothing.
        self.close = weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str] = ()) -> dict[str, Array]:
        """Arrays by output name: ``outputs``, or all. Raises ``EngineFault``."""
        folder, graph = self.folder, self.model.graph
        asked = check_names(
            feeds, (i.name for i in graph.input), outputs, (o.name for o in graph.output)
        )
        got = self._program.run(folder, {i.name: feeds[i.name] for i in graph.input})
        arrays = [
            o.name for o in graph.output if o.type.WhichOneof("value") in (None, "tensor_type")
        ]
        wanted = [name for name in asked if name in arrays]
        # What an operator makes that ONNX does not know has no type here.
        if lacking := [name for name in wanted if name not in got and self._types.get(name)]:
            gave = ", ".join(sorted(got)[:5]) or "nothing"
            raise EngineFault(
                "error", f"The program gave no output '{lacking[0]}'; it gave {gave}."
            )
        return {name: self._read(name, got[name]) for name in wanted if name in got}

    def save(self) -> Mapping[str, bytes]:
        """What a case needs beside the model, by name."""
        return self._program.save(self.folder)

    def _read(self, name: str, value: Array) -> Array:
        """What the program gave, in the type that the model declares where numpy had another one
        for it."""
        if value.dtype.kind in "SUT":
            return value.astype(object)
        if not self._types.get(name):
            return value
        declared = external.dtype_of(self._types[name])
        if value.dtype.kind == "V" and value.dtype.itemsize == declared.itemsize:
            return value.view(declared)
        lacks = declared.isbuiltin == 2 or declared == np.bool_
        return value.astype(declared) if lacks and value.dtype != declared else value


class Program:
    """The commands of a spec."""

    def __init__(self, chosen: Mapping[str, Any]) -> None:
        self._words: dict[str, str] = {name: chosen.get(name, "") for name in _KINDS}
        self._form: str = chosen["io"]

    def version(self) -> str:
        """The first line that the version command prints; raises ``EngineMissing``."""
        return self._said_version("version") if self._words["version"] else "unknown"

    def _said_version(self, option: str, *words: str) -> str:
        with self.started(option, lambda folder: {"dir": folder}, words, _ASKING) as (_, ran):
            said = next(filter(None, map(str.strip, ran.stdout.splitlines())), "")
            if ran.status != "exited" or ran.returncode or not said:
                why = ran.message or _last(ran)
                raise EngineMissing(
                    f"The version command of this engine ({self._words[option]}) gave no version: {why}"
                )
        return said[:80]

    def build(self, folder: Path) -> None:
        """Make ``folder/engine`` of ``folder/model.onnx``. Raises ``EngineFault``."""
        if not self._words["build"]:
            return
        places = {"model": folder / "model.onnx", "engine": folder / "engine"}
        with self.started("build", lambda own: {**places, "dir": own}) as (_, ran):
            refuse(ran, "build command", building=True)
        if not places["engine"].exists():
            raise EngineFault(
                "build-failed", "The build command ended well, and wrote no {engine}."
            )

    def run(self, folder: Path, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """What the program gives for these values. Raises ``EngineFault``."""

        def places(own: Path) -> dict[str, Path]:
            inputs = place_values(own, "inputs", self._form)
            write_values(inputs, feeds, self._form)
            outputs = place_values(own, "outputs", self._form)
            return {
                "model": folder / "model.onnx", "engine": folder / "engine", "inputs": inputs, "outputs": outputs, "dir": own,
            }  # fmt: skip

        with self.started("run", places) as (own, ran):
            # Without a build command it is here that a model is refused.
            refuse(ran, "program", building=not self._words["build"])
            try:
                return read_values(place_values(own, "outputs", self._form), self._form)
            except InputProblem as problem:
                said = str(problem)
                raise EngineFault(
                    "error", f"The program ended well. {said} {_heard(ran)}".rstrip()
                ) from problem

    def save(self, folder: Path) -> dict[str, bytes]:  # noqa: ARG002
        """Files by which the program runs the model elsewhere. Raises ``EngineFault``."""
        return {}

    @contextlib.contextmanager
    def started(
        self,
        option: str,
        places: Callable[[Path], Mapping[str, Path]],
        more: Sequence[str] = (),
        timeout: float = 0.0,
    ) -> Iterator[tuple[Path, command.CheckResult]]:
        """Start the command of an option, and ``more`` words, in a fresh folder, in which the user's
        files are shown; (that folder, how it ended)."""
        permit = held.permit(_KINDS[option], self._words[option])
        with tempfile.TemporaryDirectory(prefix="narrowdown-", ignore_cleanup_errors=True) as name:
            folder = Path(name)
            filled = places(folder)
            hidden = [path.name for path in filled.values()]

            def fill(text: str) -> list[str]:
                holes = shlex.split(text)
                words = [_HOLE.sub(lambda hole: str(filled[hole[1]]), word) for word in holes]
                return [*words, *more]

            ran, _ = run_agreed(permit, folder, hidden, fill, timeout, "program")
            sys.stderr.write(f"{ran.stdout}{ran.stderr}")  # the probe's log
            yield folder, ran


class Staying(Program):
    """A program that is started once: each line of the pipe ``asks`` is a run, and each of ``answers``
    says how it ended: empty, or why it failed."""

    def __init__(self, chosen: Mapping[str, Any]) -> None:
        super().__init__(chosen)
        self._ended: command.CheckResult | Exception | None = None
        self._compile: str = chosen["compile"]
        folder = Path(tempfile.mkdtemp(prefix="narrowdown-"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._pipes = {name: folder / name for name in ("asks", "answers")}
        for pipe in self._pipes.values():
            os.mkfifo(pipe, 0o600)
        # For both ways, so that neither side waits until the other has opened its end.
        self._asks, self._answers = (pipe.open("r+b", 0) for pipe in self._pipes.values())
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        """Run it to its end, which answers whoever waits."""
        words = (self._compile, *map(str, self._pipes.values()))
        try:
            with self.started("program", lambda own: {"dir": own}, words) as (_, ran):
                self._ended = ran
        except Exception as error:
            self._ended = error
        self._answers.write(b"\n")

    def version(self) -> str:
        return self._said_version("program", "version")

    def _ask(self, *places: Path) -> None:
        """Have it do one thing. Raises ``EngineFault``, and what ``started`` raises."""
        self._asks.write(("\t".join(map(str, places)) + "\n").encode())
        said = self._answers.readline().decode(errors="replace").strip()
        if isinstance(self._ended, Exception):
            raise self._ended
        ran = command.CheckResult("exited", returncode=int(bool(said)), stderr=said)
        refuse(self._ended or ran, "program", building=True)

    def run(self, folder: Path, feeds: Mapping[str, Array]) -> dict[str, Array]:
        inputs, outputs = folder / "inputs.npz", folder / "outputs.npz"
        write_values(inputs, feeds, "npz")
        self._ask(folder / "model.onnx", inputs, outputs)
        return read_values(outputs, "npz")

    def save(self, folder: Path) -> dict[str, bytes]:
        self._ask(folder / "model.onnx", folder / "part.pt2")
        return {"part.pt2": (folder / "part.pt2").read_bytes()}


class Engine:
    """A program with its options."""

    converts = True

    def __init__(self, info: EngineInfo, program: Program, chosen: Mapping[str, Any]) -> None:
        self.info = info
        self._program, self._typed = program, chosen["typed"]

    def build(self, request: BuildRequest) -> Built:
        """Write the model, and run the build command on it. Raises ``EngineFault``."""
        given = with_outputs(request.model, request.marks)
        try:
            if self._typed or (request.keep and self.info.precision in ("fp16", "bf16")):
                given = to_precision(given, self.info.precision, request.keep)
        except ModelProblem as error:
            raise EngineFault("unsupported", str(error)) from error
        built = Built(self._program, _stated(given))
        try:
            write_with_weights(built.folder / "model.onnx", built.model, request.weights_dir)
            self._program.build(built.folder)
        except ModelProblem as error:
            built.close()
            raise EngineFault("invalid-model", str(error)) from error
        except BaseException:
            built.close()
            raise
        return built


def make(spec: EngineSpec) -> Engine:
    """The engine of a spec. Raises ``EngineMissing`` where there is no program, or where it does
    not start; ``ValueError`` for options that do not go together; ``NotAgreed``."""
    chosen = {o.name: o.default for o in DECLARATION.options} | options.values(spec)
    if not (chosen["run"] or chosen.get("program")):
        raise EngineMissing(options.declared_as(spec.name).needs)
    precision: str = chosen["precision"]
    low = precision in ("fp16", "bf16")
    if chosen["typed"] and not low:
        raise ValueError(
            "command: typed=true goes with precision=fp16 or bf16: the model is converted to that."
        )
    commands = options.commands(str(spec))
    for _, text in commands:
        first = shlex.split(text)[0]
        if shutil.which(first) is None:
            raise EngineMissing(
                f"The program '{first}' of this engine was not found; put it back, or give its full path."
            )
    covered = {path: d for each in commands for path, d in held.permit(*each).files.items()}
    program = Staying(chosen) if chosen.get("program") else Program(chosen)
    version = program.version()
    device = chosen["device"] or machine.cpu()[0]
    scripts = hashlib.sha256(repr(sorted(covered.items())).encode()).hexdigest()
    builds = bool(chosen["build"])
    once = "the program builds as it runs; give what builds it alone as build=."
    info = EngineInfo(
        name=spec.name,
        spec=str(spec),
        version=version,
        device=device,
        precision=precision,
        storage=_STORAGE.get(precision, "float32"),
        fingerprint=machine.fingerprint(spec.name, version, chosen, device, scripts=scripts),
        capabilities=list_capabilities(
            build="" if builds else once,
            keep="" if chosen["typed"]
            else "the program chooses its own types; where it takes a model in FP16 or BF16 as it is, add typed=true."
            if low
            else f"it computes in {precision.upper()}, so there is nothing to keep.",
            casts=f"it computes in {precision.upper()}." if not low else "it keeps to casts." if chosen["typed"] else "",
            optimizers="a program has no switches that are known here.",
            tactics="nothing is known of how the program chooses kernels.",
            rebuild="" if builds else once,
            latency="most of the time goes into starting the program.",
            threads="give the program's own option for it in its command.",
        ),
        options=options.declared_as(spec.name).options,
        slots=1,
        # Given a file that has its types in it, the program that is told to keep to them needs no
        # conversion before.
        typed=str(spec.with_option("typed", "")) if chosen["typed"] or not low else "",
    )  # fmt: skip
    return Engine(info, program, chosen)


def _stated(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the type, and where it can be told the shape, of each output: others' loaders
    ask for both."""
    if all(
        o.type.HasField("tensor_type") and o.type.tensor_type.HasField("shape")
        for o in model.graph.output
    ):
        return model
    copy = deepcopy(model)
    protos.refill(copy.graph.output, schema.infer_shapes(model).graph.output)
    types = schema.element_types(model)
    for output in copy.graph.output:
        if not output.type.WhichOneof("value") and types.get(output.name):
            output.type.tensor_type.elem_type = types[output.name]
    return copy


def refuse(ran: command.CheckResult, what: str, *, building: bool) -> None:
    """Raise ``EngineFault`` for a program that did not end well. ``building``: a model may be
    refused here."""
    text = f"{ran.stderr}\n{ran.stdout}"
    if ran.status == "exited" and not ran.returncode:
        return
    if ran.status == "not-started":
        raise EngineFault("refused", ran.message)
    if ran.status == "lost" or ran.signal:
        number = ran.signal or int(signal.SIGKILL)
        fault = EngineFault("crash", f"The {what} died of {signal_name(number)}. {_heard(ran)}")
        fault.signal = number
        raise fault
    said = f"The {what} ended with exit code {ran.returncode}: {_last(ran)}"
    if ran.returncode == CANNOT or _UNSUPPORTED.search(text):
        raise EngineFault("unsupported", said)
    if _NO_MEMORY.search(text):
        raise EngineFault("out-of-memory", said)
    raise EngineFault("build-failed" if building else "error", said)


def _last(ran: command.CheckResult) -> str:
    """The last line that it said, as the end of a sentence."""
    lines = [
        line.strip()
        for line in (ran.stderr.strip() or ran.stdout.strip()).splitlines()
        if line.strip()
    ]
    said = lines[-1][:300] if lines else "it said nothing"
    return said if said.endswith((".", "!", "?")) else f"{said}."


def _heard(ran: command.CheckResult) -> str:
    return (
        f"It said: {_last(ran)}"
        if (ran.stderr.strip() or ran.stdout.strip())
        else "It said nothing."
    )


def place_values(folder: Path, name: str, form: str) -> Path:
    """``inputs.npz``, ``inputs.json``, or the folder ``inputs``."""
    return folder / (name if form == "npy" else f"{name}.{form}")


def write_values(path: Path, feeds: Mapping[str, Array], form: str) -> None:
    """What a program is fed, by name. In a folder a name's odd characters are written as in a URL.
    Raises ``OSError``."""
    if form == "npz":
        write_npz(path, feeds)
    elif form == "json":
        polygraphy.write_inputs(
            path, [{name: widen_for_file(value) for name, value in feeds.items()}]
        )
    else:
        path.mkdir()
        for name, value in feeds.items():
            with (path / f"{quote(name, safe='')}.npy").open("wb") as file:
                write_npy(file, widen_for_file(value))


def read_values(path: Path, form: str) -> dict[str, Array]:
    """What a program gave, by name. Raises ``InputProblem`` with a sentence: there is nothing, or
    it cannot be read."""
    if not path.exists():
        raise InputProblem(f"It wrote no '{path.name}'.")
    if form == "npz":
        return files.read_npz(path)
    if form == "json":
        feeds = polygraphy.read_inputs(path)
        return feeds[0] if feeds else {}
    return {
        unquote(file.stem): np.array(files.read_npy(file)) for file in sorted(path.glob("*.npy"))
    }
