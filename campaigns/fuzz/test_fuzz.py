"""Hostile files of every kind that the program reads from strangers: each is read, or refused with
a sentence; nothing else.

``make fuzz`` tries NARROWDOWN_FUZZ files of each kind (20,000 unless it says otherwise; of those
that take long fewer, but 1,000) and prints a table; the fast suite tries a few. A file that takes
its reader down, or longer than LIMIT seconds, fails the campaign like one that raises what nobody
foresaw, or that a command calls our own fault (70). ``mutants.py`` asks whether it would notice.
"""

import concurrent.futures
import functools
import io
import itertools
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import yaml
from hypothesis import HealthCheck, Phase, given, settings, strategies as st
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from narrowdown.engines.graph.load import MOST_NODES
from narrowdown.wizard.demo import MODELS
from tests.patience import allow

from . import commands, mutate, specials, strays

FEW, MANY = 24, int(os.environ.get("NARROWDOWN_FUZZ", "20000"))
# YAML is slow to parse, and a session is shown and reported in every form.
FEWER = {
    "flows": 4,
    "journals": 8,
    "session.json": 8,
    "parts of sessions": 16,
    "special files in sessions": 20,
    "functions": 4,
}
LEAST = min(MANY, 1_000)
# Seconds of the processor for one file: by the clock, a file that takes 3 on a quiet machine took
# over 10 on a busy one, and what is sound failed. What only waits takes no processor, and is late
# by the clock, after WAITS times as long.
LIMIT = float(os.environ.get("NARROWDOWN_FUZZ_LIMIT", "60"))
WAITS = 3
# Seconds beyond that after which a reader is ended from outside: its own alarms wait for native
# code to return.
GRACE = 10.0
MEMORY = (
    8 << 30
)  # bytes that a reader may ask for beside what this process has: what has no end fails

# Of these nothing is refused: a log is searched for what it tells.
ALL_READ = ("builder logs", "parts of sessions")

Read = Callable[[bytes, Path], str]


# -- what is read: (bytes, a folder to work in) -> "read", or "refused: Kind". Whatever else happens is a finding.


def sentence(error: Exception) -> str:
    """The kind of a refusal, once it is sure that its words are fit for people."""
    text = str(error)
    assert text, "a refusal says something"
    assert "Traceback" not in text
    return f"refused: {type(error).__name__}"


def model(data: bytes, folder: Path) -> str:
    from narrowdown.engines.backends import ceiling
    from narrowdown.engines.graph import ModelProblem, load
    from narrowdown.engines.store import Store

    path = folder / "m.onnx"
    path.write_bytes(data)
    store = Store(folder / "s")
    try:
        imported = load.import_model(path, store, ceiling.onnxruntime)
        found = load.load(store, imported.digest)
        assert found.index.nodes
        for tensor in found.index.tensors:
            if tensor.kind == "weight" and tensor.bytes < 1 << 20:
                load.read_weight(found, tensor.id)
    except ModelProblem as error:
        return sentence(error)
    finally:
        load._load.cache_clear()
    return "read"


def inputs(ending: str) -> Read:
    def read(data: bytes, folder: Path) -> str:
        from narrowdown.engines.data import InputProblem, files

        path = folder / f"x{ending}"
        path.write_bytes(data)
        try:
            for given_ in files.read(str(path), ["x"], str(folder)):
                assert all(
                    isinstance(a, np.ndarray) and a.dtype != object for a in given_.arrays.values()
                )
        except InputProblem as error:
            return sentence(error)
        return "read"

    return read


def outputs(data: bytes, folder: Path) -> str:
    from narrowdown.engines.data import InputProblem, polygraphy

    path = folder / "o.json"
    path.write_bytes(data)
    try:
        polygraphy.read_outputs(path)
    except InputProblem as error:
        return sentence(error)
    return "read"


def flow(data: bytes, folder: Path) -> str:
    from narrowdown.wizard.flow import check, load, render

    path = folder / "f.yaml"
    path.write_bytes(data)
    try:
        loaded = load.load(path)
    except load.FlowProblem as error:
        return sentence(error)
    problems = check.check(loaded)
    for draw in (render.text, render.mermaid, render.svg):
        draw(loaded.flow).encode()
    "".join(problem.message for problem in problems).encode()
    ended = commands.run(["flow", "check", str(path)])
    assert ended.code == (2 if problems else 0), ended
    return "refused: lint" if problems else "read"


def answers(data: bytes, folder: Path) -> str:
    from narrowdown.wizard import Refusal
    from narrowdown.wizard.cli.answers import read_answers
    from narrowdown.wizard.flow.load import load

    path = folder / "a.yaml"
    path.write_bytes(data)
    try:
        read_answers(str(path), load("accuracy").flow)
    except Refusal as error:
        return sentence(error)
    return "read"


def session(part: str) -> Read:
    """A session folder with this file of it damaged: listed, shown, watched, reported, repaired."""

    def read(data: bytes, folder: Path) -> str:
        from narrowdown.wizard.flow.load import FlowProblem
        from narrowdown.wizard.plain import PlainDisplay
        from narrowdown.wizard.report.canonical import canonical
        from narrowdown.wizard.report.document import to_json
        from narrowdown.wizard.report.html import to_html
        from narrowdown.wizard.report.markdown import to_markdown
        from narrowdown.wizard.report.read import read as read_session
        from narrowdown.wizard.session import SessionProblem, folder as folders, journal

        place = folder / "session"
        shutil.copytree(walked(), place)
        (place / part).write_bytes(data)
        said = "read"
        assert folders.summary(place).path == place
        try:
            reading = read_session(place)
            canonical(reading.state, reading.flow)
            watched = io.StringIO()
            display = PlainDisplay(reading.flow, watched)
            for event in journal.events(place / journal.NAME):
                display.event(event)
            display.close()
            assert "\x1b" not in watched.getvalue()
            report = reading.report()
            for page in (to_html(report), to_markdown(report), to_json(report)):
                assert "\x1b" not in page
                page.encode()
            assert "<script>" not in to_html(report)
            assert readable_anywhere(json.loads(to_json(report)))
        except (SessionProblem, FlowProblem) as error:
            said = sentence(error)
        for words in (["show"], ["report"]) if chance(data, 4) else (["show", "--json"],):
            ended = commands.run([words[0], str(place), *words[1:]])
            assert (ended.code != 0) == (said != "read"), (said, ended)
            assert (
                "--json" not in words or said != "read" or readable_anywhere(json.loads(ended.out))
            )
        if part == journal.NAME:
            try:
                kept, _ = journal.repair(data, place / part)
                tuple(journal.Scan(io.BytesIO(kept), place / part))
            except SessionProblem as error:
                sentence(error)
        return said

    return read


def readable_anywhere(data: Any) -> bool:
    """Whether all whole numbers are of 64 bits, or a sum of some such: of one of 30 digits,
    programs in most languages take the whole text for broken."""
    match data:
        case dict():
            return all(map(readable_anywhere, data.values()))
        case list():
            return all(map(readable_anywhere, data))
        case int():
            return abs(data) < 2**70
    return True


def chance(data: bytes, many: int) -> bool:
    """One in so many, by the bytes alone."""
    return random.Random(data).randrange(many) == 0


def parts(data: bytes, folder: Path) -> str:
    """What lies beside the journal: notes and artifacts. They are made again, or their loss is
    told; nothing else happens."""
    pick = random.Random(data)
    place = folder / "session"
    shutil.copytree(walked(), place)
    artifacts = sorted(path for path in (place / "artifacts").rglob("*") if path.is_file())
    path = pick.choice([place / "lock", place / "progress.json", *artifacts])
    path.write_bytes(data)
    said = "read"
    for words in (["show", "--json"], ["replay", "--dry"], ["sessions"]):
        where = [] if words == ["sessions"] else [str(place)]
        ended = commands.run([words[0], *where, *words[1:]], NARROWDOWN_HOME=str(folder))
        said = said if ended.code in (0, 10) else f"refused: {ended.code}"
    return said


def tactics(data: bytes, folder: Path) -> str:
    from narrowdown.engines.data import tactic_replay

    path = folder / "t.json"
    path.write_bytes(data)
    try:
        replay = tactic_replay.read_replay(path)
        tactic_replay.rank_suspects([{}], [replay])
        for found in replay.values():
            tactic_replay.describe_algorithm(found).encode()
    except tactic_replay.ReplayProblem as error:
        return sentence(error)
    return "read"


def builder_log(data: bytes, _folder: Path) -> str:
    from narrowdown.engines.backends.tensorrt import timings

    heard = timings.parse_timings(data.decode(errors="replace").splitlines())
    assert all(isinstance(found.name, str) for found in heard.values())
    return "read"


def special_session(data: bytes, folder: Path) -> str:
    return specials.session(data, folder, walked())


def special_named(data: bytes, folder: Path) -> str:
    return specials.named(data, folder, MODELS / "shapes_cnn.onnx")


@functools.cache
def walked() -> Path:
    return Path(os.environ["NARROWDOWN_FUZZ_SESSION"])


# -- what they are made from


@functools.cache
def protos() -> list[onnx.ModelProto]:
    made = [onnx.load(MODELS / name) for name in ("pillars_add.onnx", "shapes_cnn.onnx")]
    branch = helper.make_graph([helper.make_node("Relu", ["h"], ["b"])], "b", [], [info("b")])
    nodes = [
        helper.make_node(
            "Constant", [], ["c"], value=numpy_helper.from_array(np.ones(4, np.float32))
        ),
        helper.make_node("Add", ["x", "c"], ["h"]),
        helper.make_node("If", ["yes"], ["z"], then_branch=branch, else_branch=branch),
        helper.make_node("F", ["z"], ["y"], domain="own"),
    ]
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    function = helper.make_function(
        "own", "F", ["a"], ["b"], [helper.make_node("Neg", ["a"], ["b"])], imports[:1]
    )
    apart = numpy_helper.from_array(np.ones(4, np.float32), "w")
    apart.data_location = TensorProto.EXTERNAL
    apart.ClearField("raw_data")
    for key, value in (("location", "w.bin"), ("offset", "0"), ("length", "16")):
        entry = apart.external_data.add()
        entry.key, entry.value = key, value
    yes = numpy_helper.from_array(np.array(True), "yes")
    graph = helper.make_graph(nodes, "g", [info("x")], [info("y")], [yes, apart])
    made.append(helper.make_model(graph, opset_imports=imports, functions=[function], ir_version=9))
    return made


def info(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 4])


@functools.cache
def arrays() -> dict[str, bytes]:
    from narrowdown.engines.data import polygraphy

    feed = {"x": np.arange(12, dtype=np.float32).reshape(3, 4), "ids": np.arange(3)}
    npz, npy = io.BytesIO(), io.BytesIO()
    np.savez_compressed(npz, **feed)
    np.save(npy, feed["x"])
    path = Path(os.environ["NARROWDOWN_FUZZ_SESSION"]).parent / "made.json"
    polygraphy.write_inputs(path, [feed])
    written = path.read_bytes()
    polygraphy.write_outputs(path, [feed])
    png = io.BytesIO()
    Image.fromarray(np.arange(48, dtype=np.uint8).reshape(4, 4, 3)).save(png, "png")
    return {
        "png": png.getvalue(),
        "npz": npz.getvalue(),
        "npy": npy.getvalue(),
        "inputs": written,
        "outputs": path.read_bytes(),
    }


def damaged_model() -> st.SearchStrategy[bytes]:
    def make(which: int, seed: int, edits: list[tuple[str, float, bytes]], deep: bool) -> bytes:
        proto = onnx.ModelProto()
        proto.CopyFrom(protos()[which])
        if not deep:
            return mutate.edited(proto.SerializeToString(), edits)
        mutate.message(proto, seed)
        return proto.SerializeToString()

    return st.builds(
        make,
        st.integers(0, 2),
        st.integers(0, 2**32),
        mutate.EDITS,
        st.sampled_from([True, True, False]),
    )


def pickled(form: str) -> st.SearchStrategy[bytes]:
    """Arrays of Python objects, whose pickle would run something."""

    class Runs:
        def __init__(self, what: str) -> None:
            self.what = what

        def __reduce__(self) -> tuple[Any, tuple[str]]:
            return os.mkdir, (self.what,)

    def make(what: str) -> bytes:
        file = io.BytesIO()
        array = np.array([Runs(what)], object)
        np.savez(file, x=array) if form == "npz" else np.save(file, array, allow_pickle=True)
        return file.getvalue()

    return st.builds(make, st.sampled_from(["/tmp/narrowdown-ran", "ran"]))


def own_functions() -> st.SearchStrategy[bytes]:
    """Models whose own functions call one another: as a tree of up to 2**60 leaves, in a row of up
    to 400, in a circle, or at random (``web``)."""

    def make(count: int, calls: int, back: int, body: bool) -> bytes:
        imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]

        def function(i: int) -> onnx.FunctionProto:
            called = i - 1 if i else back
            op, domain = (f"F{called}", "own") if called >= 0 else ("Neg", "")
            tensors = ["a", *(f"t{n}" for n in range(1, calls)), "b"]
            nodes = [
                helper.make_node(op, [a], [b], domain=domain)
                for a, b in itertools.pairwise(tensors)
            ]
            return helper.make_function("own", f"F{i}", ["a"], ["b"], nodes, imports)

        call = helper.make_node(f"F{count - 1}", ["x"], ["y"], domain="own")
        if body:
            inner = helper.make_graph(
                [helper.make_node(f"F{count - 1}", ["x"], ["z"], domain="own")],
                "b",
                [],
                [info("z")],
            )
            call = helper.make_node("If", ["yes"], ["y"], then_branch=inner, else_branch=inner)
        yes = numpy_helper.from_array(np.array(True), "yes")
        graph = helper.make_graph([call], "g", [info("x")], [info("y")], [yes])
        functions = [function(i) for i in range(count)]
        return helper.make_model(
            graph, functions=functions, opset_imports=imports, ir_version=9
        ).SerializeToString()

    few = st.builds(make, st.integers(1, 8), st.integers(1, 3), st.integers(-1, 0), st.booleans())
    deep = st.builds(make, st.sampled_from([30, 60]), st.integers(2, 3), st.just(-1), st.booleans())
    round_ = st.builds(
        lambda count, calls: make(count, calls, count - 1, False),
        st.integers(1, 30),
        st.integers(1, 2),
    )
    row = st.builds(lambda count: make(count, 1, -1, False), st.integers(90, 400))
    webs = st.builds(web, st.integers(0, 2**32))
    return st.one_of(few, deep, round_, row, webs, webs, webs, webs)


def web(seed: int) -> bytes:
    """A model of up to 30 functions of its own, each of which calls a few of those before it, in
    bodies of branches too; some call themselves, a later one or none that there is; some have the
    name of another, and some models are damaged besides. Inlined it has few nodes, or more than are
    taken: what lies between is sound, and takes minutes (352,236 nodes took over one of the
    processor), so it would tell of no fault and be late."""
    chance = random.Random(seed)
    while True:
        made, size = _web(chance)
        if size <= 10_000 or size > MOST_NODES:
            break
    if chance.random() < 0.2:
        mutate.message(made, seed)
    return made.SerializeToString()


def _web(chance: random.Random) -> tuple[onnx.ModelProto, int]:
    """(such a model, how many nodes it has once its functions are inlined; what calls itself counts
    as one)."""
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    count, most = chance.randint(1, 30), chance.choice((1, 2, 2, 3, 6))
    wild = chance.choice((0.0, 0.0, 0.02))
    sizes: dict[str, int] = {}

    def called(before: int) -> tuple[str, str]:
        if chance.random() < wild:
            return f"F{chance.randrange(count + 2)}", "own"
        if not before or chance.random() < 0.2:
            return "Neg", ""
        return f"F{chance.randrange(chance.choice((0, max(0, before - 3))), before)}", "own"

    def nodes(before: int, first: str, last: str, deep: int = 0) -> list[onnx.NodeProto]:
        tensors = [first, *(f"{last}{n}" for n in range(1, chance.randint(1, most))), last]
        made = []
        for a, b in itertools.pairwise(tensors):
            if deep < 3 and chance.random() < 0.1:
                inner = helper.make_graph(
                    nodes(before, a, f"{b}_", deep + 1), "b", [], [info(f"{b}_")]
                )
                yes = helper.make_node(
                    "Constant", [], [f"{b}_yes"], value=numpy_helper.from_array(np.array(True))
                )
                branch = helper.make_node(
                    "If", [f"{b}_yes"], [b], then_branch=inner, else_branch=inner
                )
                made += [yes, branch]
            else:
                op, domain = called(before)
                made.append(helper.make_node(op, [a], [b], domain=domain))
        return made

    def size(of: Iterable[onnx.NodeProto]) -> int:
        return sum(
            sizes.get(n.op_type, 1) + sum(size(a.g.node) for a in n.attribute if a.HasField("g"))
            for n in of
        )

    names = [f"F{chance.randrange(i + 1) if chance.random() < wild else i}" for i in range(count)]
    functions = []
    for i, name in enumerate(names):
        inside = nodes(i, "a", "b")
        sizes[name] = size(inside)
        known = imports[: chance.choice((1, 2, 2, 2, 2))]
        functions.append(helper.make_function("own", name, ["a"], ["b"], inside, known))
    chance.shuffle(functions)
    graph = helper.make_graph(nodes(count, "x", "y"), "g", [info("x")], [info("y")])
    proto = helper.make_model(graph, functions=functions, opset_imports=imports, ir_version=9)
    return proto, size(graph.node)


def damaged_bytes(original: Callable[[], bytes]) -> st.SearchStrategy[bytes]:
    return st.builds(lambda edits: mutate.edited(original(), edits), mutate.EDITS)


def damaged_json(original: Callable[[], bytes]) -> st.SearchStrategy[bytes]:
    trees = st.integers(0, 2**32).map(
        lambda seed: mutate.written(mutate.tree(json.loads(original()), seed))
    )
    return st.one_of(trees, damaged_bytes(original))


def damaged_journal() -> st.SearchStrategy[bytes]:
    def original() -> bytes:
        return (walked() / "journal.jsonl").read_bytes()

    signed = st.integers(0, 2**32).map(
        lambda seed: mutate.journal(original().splitlines(keepends=True), seed)
    )
    return st.one_of(signed, signed, damaged_bytes(original))


def overgrown_journals() -> Iterator[bytes]:
    return mutate.overgrown((walked() / "journal.jsonl").read_bytes().splitlines(keepends=True))


def plain(data: Any) -> Any:
    """What YAML's texts stand for where they are numbers, true or false: written as texts they
    would be another flow."""
    if isinstance(data, dict):
        return {key: plain(value) for key, value in data.items()}
    if isinstance(data, list):
        return [plain(value) for value in data]
    if data.endswith("MiB") and data[:-3].isdigit():
        return int(data[:-3]) << 20  # only a plain scalar is a size
    try:
        found = json.loads(data)
    except ValueError:
        return data
    return found if isinstance(found, int | float) else data


@functools.cache
def sound_flow() -> Any:
    """The shipped flow as plain data."""
    return plain(
        yaml.load(
            (files("narrowdown.flows") / "accuracy.yaml").read_bytes(), Loader=yaml.BaseLoader
        )
    )


def test_the_flow_that_is_damaged_is_sound(tmp_path: Path) -> None:
    """Else a fault of its own would hide what the damage leads to."""
    sound = sound_flow()
    (tmp_path / "whole").mkdir()
    assert flow(mutate.written(sound), tmp_path / "whole") == "read"


def damaged_flow() -> st.SearchStrategy[bytes]:
    def original() -> bytes:
        return (files("narrowdown.flows") / "accuracy.yaml").read_bytes()

    trees = st.integers(0, 2**32).map(lambda seed: mutate.written(mutate.tree(sound_flow(), seed)))
    laughs = st.integers(5, 40).map(
        lambda depth: "".join(
            f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9 if i else ['x'])}]\n" for i in range(depth)
        ).encode()
    )
    return st.one_of(trees, trees, trees, trees, damaged_bytes(original), laughs)


TACTICS = {
    "replay": {
        "conv": {
            "implementation": 1, "tactic": 2,
            "inputs": [{"dtype": "FLOAT", "strides": [1, 2], "vectorized_dim": None, "components_per_element": 1,
                        "polygraphy_class": "TensorInfo"}],
            "outputs": [], "polygraphy_class": "Algorithm",
        },
    },
    "polygraphy_class": "TacticReplayData",
}  # fmt: skip
BUILDER_LOG = (
    b"*************** Autotuning op conv ({key: 0x0123456789abcdef0123456789abcdef}) ***************\n"
    b"Tactic Name: k Tactic: 0x0123456789abcdef Time: 0.0123\n1, 0.5, 0x0123456789abcdef, x\nselected tactic 0x1\n"
    * 3
)


ANSWERS = b"reproduce: yes\nsanitize: [yes, 'no']\ndouble-check:\n  - {answer: tolerance, tolerance: 0.05}\n  - stop\n"
KINDS: dict[str, tuple[Read, Callable[[], st.SearchStrategy[bytes]]]] = {
    "ONNX models": (model, damaged_model),
    "journals": (session("journal.jsonl"), damaged_journal),
    "session.json": (
        session("session.json"),
        lambda: damaged_json(lambda: (walked() / "session.json").read_bytes()),
    ),
    "flows": (flow, damaged_flow),
    "answers files": (answers, lambda: damaged_bytes(lambda: ANSWERS)),
    "Polygraphy inputs": (inputs(".json"), lambda: damaged_json(lambda: arrays()["inputs"])),
    "Polygraphy outputs": (outputs, lambda: damaged_json(lambda: arrays()["outputs"])),
    "npz archives": (
        inputs(".npz"),
        lambda: st.one_of(*[damaged_bytes(lambda: arrays()["npz"])] * 9, pickled("npz")),
    ),
    "npy arrays": (
        inputs(".npy"),
        lambda: st.one_of(*[damaged_bytes(lambda: arrays()["npy"])] * 9, pickled("npy")),
    ),
    "images": (inputs(".png"), lambda: damaged_bytes(lambda: arrays()["png"])),
    "functions": (model, own_functions),
    "tactic replays": (tactics, lambda: damaged_json(lambda: json.dumps(TACTICS).encode())),
    "builder logs": (builder_log, lambda: damaged_bytes(lambda: BUILDER_LOG)),
    "parts of sessions": (
        parts,
        lambda: damaged_json(lambda: (walked() / "session.json").read_bytes()),
    ),
    "special files in sessions": (special_session, lambda: st.binary(min_size=4, max_size=4)),
    "special files that are named": (special_named, lambda: st.binary(min_size=4, max_size=4)),
}

# Files that are sure to be among those of a kind, up to a third of them: what chance would reach in
# some campaigns alone.
SURE: dict[str, Callable[[], Iterator[bytes]]] = {
    "journals": overgrown_journals,
    "flows": lambda: mutate.endless(sound_flow(), templates=True),
    "Polygraphy inputs": lambda: mutate.endless(json.loads(arrays()["inputs"])),
}


# -- the campaign


class Reader:
    """Reads in a process of its own: a native library that dies, or that never returns, is a
    finding, not the end of the campaign."""

    def __init__(self, kind: str, folder: Path) -> None:
        self._kind, self._folder = kind, folder
        self._numbers = itertools.count()
        self._pool: concurrent.futures.ProcessPoolExecutor | None = None
        self._process = 0

    def __call__(self, data: bytes) -> str:
        if self._pool is None:
            self._pool = concurrent.futures.ProcessPoolExecutor(
                1, multiprocessing.get_context("fork")
            )
            self._process = self._pool.submit(os.getpid).result()
        place, seconds = self._folder / str(next(self._numbers)), allow(WAITS * LIMIT)
        try:
            return self._pool.submit(_read, self._kind, data, str(place), seconds).result(
                seconds + GRACE
            )
        except BrokenProcessPool:
            self._pool = None
            return "died"
        except TimeoutError:
            os.kill(self._process, signal.SIGKILL)
            self._pool = None
            return f"hung: no answer within {seconds:.0f} s, and not even its alarm was heard"
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()


def _read(kind: str, data: bytes, place: str, seconds: float) -> str:
    """``seconds``: by the clock."""
    folder = Path(place)
    folder.mkdir()
    watching = strays.watch((folder, walked(), walked().parent / "made.json"))
    alarms = {
        signal.ITIMER_REAL: (signal.SIGALRM, seconds),
        signal.ITIMER_PROF: (signal.SIGPROF, LIMIT),
    }
    # Threads of native libraries, one a core, have addresses in plenty: what is here already counts
    # for nothing.
    here = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(
        resource.RLIMIT_AS, (here + MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1])
    )
    for timer, (sent, after) in alarms.items():
        signal.signal(sent, _late)
        signal.setitimer(
            timer, after, 1.0
        )  # again and again: a cleanup on the way out may wait, too
    try:
        with watching as strayed:
            said = KINDS[kind][0](data, folder)
    except (Exception, Late):
        _calm(alarms)
        return traceback.format_exc()
    finally:
        _calm(alarms)
    return f"strayed: {strayed[:4]}" if strayed else said


class Late(BaseException):
    """No answer in time. No Exception, and above all no OSError: what is read would take it for the
    file's own."""


def _late(number: int, _: object) -> None:
    raise Late(
        "no answer in time"
        if number == signal.SIGALRM
        else f"no answer within {LIMIT:.0f} s of the processor"
    )


def _calm(timers: Iterable[int]) -> None:
    for timer in timers:
        signal.setitimer(timer, 0)


@pytest.fixture(scope="module")
def recorded(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[None]:
    """A real session at its end, for the journals: the route of a case that was found; in the fast
    suite one step alone. Where NARROWDOWN_FUZZ_SESSION names one already, it is that one."""
    if "NARROWDOWN_FUZZ_SESSION" in os.environ:
        yield
        return
    folder = tmp_path_factory.mktemp("fuzz")
    model = MODELS / "shapes_cnn.onnx"
    route = ["run", model, "--inputs", MODELS / "shapes_cnn_in.npz", "--tolerance", "1e-3"]
    words = route if request.config.option.markexpr == "fuzz" else ["step", "sanitize", model]
    words = [
        sys.executable,
        "-P",
        "-m",
        "narrowdown",
        *words,
        "--display",
        "none",
        "--session",
        folder / "s",
    ]
    path = os.pathsep.join(
        filter(None, (str(MODELS.parents[1]), os.environ.get("PYTHONPATH")))
    )  # also where it is not installed
    environment = {
        **os.environ, "PYTHONPATH": path, "NARROWDOWN_HOME": str(folder / "home"), "XDG_STATE_HOME": str(folder / "state"),
    }  # fmt: skip
    subprocess.run(words, env=environment, check=True)
    for part in ("models", "captures", "inputs", "case", "logs"):
        shutil.rmtree(folder / "s" / part, ignore_errors=True)
    os.environ["NARROWDOWN_FUZZ_SESSION"] = str(folder / "s")
    yield
    del os.environ["NARROWDOWN_FUZZ_SESSION"]
    walked.cache_clear()


def campaign(kind: str, count: int, folder: Path) -> tuple[Counter[str], float]:
    """How the files ended, and the seconds of the slowest. Fails with the first one that ended in
    no sentence."""
    found: Counter[str] = Counter()
    slowest = 0.0
    reader = Reader(kind, folder)
    sure = list(itertools.islice(SURE[kind](), count // 3)) if kind in SURE else []

    @settings(
        max_examples=count - len(sure),
        deadline=None,
        database=None,
        phases=[
            Phase.generate,
            *([] if os.environ.get("NARROWDOWN_FUZZ_LIMIT") else [Phase.shrink]),
        ],
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    @given(KINDS[kind][1]())
    def each(data: bytes) -> None:
        one(data)

    def one(data: bytes) -> None:
        nonlocal slowest
        began = time.monotonic()
        said = reader(data)
        slowest = max(slowest, time.monotonic() - began)
        found[said if len(said) < 60 else "other"] += 1
        assert said == "read" or said.startswith("refused: "), (
            f"{data[:400]!r} ({len(data)} bytes)\n{said}"
        )

    try:
        for data in sure:
            one(data)
        each()
    finally:
        reader.close()
    return found, slowest


def test_a_reader_that_hears_no_alarm_is_ended_from_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recorded: None
) -> None:
    def hang(data: bytes, _folder: Path) -> str:
        if data == b"hang":
            signal.pthread_sigmask(
                signal.SIG_BLOCK, {signal.SIGALRM}
            )  # as native code that never returns
            time.sleep(600)
        return "read"

    monkeypatch.setitem(KINDS, "hanging", (hang, st.binary))
    monkeypatch.setitem(globals(), "LIMIT", 0.2)
    monkeypatch.setitem(globals(), "GRACE", 0.3)
    reader = Reader("hanging", tmp_path)
    try:
        assert [reader(data).split(":")[0] for data in (b"sound", b"hang", b"sound")] == [
            "read",
            "hung",
            "read",
        ]
    finally:
        reader.close()


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize("kind", KINDS)
def test_a_few_damaged_files(kind: str, tmp_path: Path) -> None:
    campaign(kind, max(2, FEW // FEWER.get(kind, 1)), tmp_path)
    damaged = b"\0\0\0\n"
    if kind == "journals":  # at their end, damage is a line that was not written to its end
        damaged += (walked() / "journal.jsonl").read_bytes()
    (tmp_path / "damaged").mkdir()
    said = KINDS[kind][0](damaged, tmp_path / "damaged")
    assert (said == "read") == (kind in ALL_READ), "damage is noticed"


@pytest.mark.fuzz
@pytest.mark.timeout(0)
@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize("kind", KINDS)
def test_many_damaged_files(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    began = time.monotonic()
    found, slowest = campaign(kind, max(LEAST, MANY // FEWER.get(kind, 1)), tmp_path)
    shown = ", ".join(f"{n:,} {said.removeprefix('refused: ')}" for said, n in found.most_common())
    row = f"| {kind} | {sum(found.values()):,} | {shown} | 0 | 0 | {slowest:.1f} s | {time.monotonic() - began:.0f} s |"
    with capsys.disabled():
        print(f"\n{row}")
    if table := os.environ.get("NARROWDOWN_FUZZ_TABLE"):
        with Path(table).open("a") as file:  # where kinds are tried side by side
            print(row, file=file)
