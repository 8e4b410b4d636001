"""Sessions as an attacker would forge them: every kind of thing that can run, hidden in every way
that was thought of.

A payload tells that it ran by writing a canary. A session is a copy of a finished one, its
description edited and its checksum mended as documented.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import onnx
from onnx import TensorProto, helper

from narrowdown.engines.backends.tensorrt import kept_timings
from narrowdown.engines.backends.tensorrt.cuda import Device
from narrowdown.wizard import trust
from narrowdown.wizard.ladder import environments
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.session import folder as folders, journal

from . import signing

GOLDEN = Path(__file__).parents[2] / "tests" / "sessions" / "format-1.zip"
_SCRIPT = """import pathlib
pathlib.Path({canary!r}).write_text("ran")
import numpy as np
def load_data():
    yield {{"x": np.full((1, 8), 300.0, np.float32)}}
def postprocess_outputs(outputs):
    return outputs
"""
_LIBRARY = """#include <stdio.h>
#include <stdlib.h>
__attribute__((constructor)) static void ran(void) {
    FILE *file = fopen("CANARY", "w");
    if (file) { fputs("ran", file); fclose(file); }
}
struct OrtStatus; void *RegisterCustomOps(void *options, const void *api) { return 0; }
"""
JSON = dict[str, Any]


class Payload(NamedTuple):
    """``suffix`` of the file; ``write`` it to a path, for a canary; ``name`` it in a problem, by
    the text given. ``code``: whether it writes the canary on this machine when it is run."""

    suffix: str
    write: Callable[[Path, Path], None]
    name: Callable[[JSON, str], None]
    code: bool = True


def script(path: Path, canary: Path) -> None:
    path.write_text(_SCRIPT.format(canary=str(canary)), encoding="utf-8")


def library(path: Path, canary: Path) -> None:
    """A shared library whose constructor writes the canary; without a compiler one that no loader
    takes."""
    compiler = shutil.which("cc")
    if compiler is None:
        path.write_bytes(b"\x7fELF and nothing else")
        return
    source = path.with_suffix(".c")
    source.write_text(_LIBRARY.replace("CANARY", str(canary)), encoding="utf-8")
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", path, source], check=True, capture_output=True
    )
    source.unlink()


def model(path: Path, _canary: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 8])],
    )
    onnx.save(helper.make_model(graph), path)


def cache(path: Path, _canary: Path) -> None:
    path.write_text("TRT-100600-EntropyCalibration2\nx: 3c55f9cf\n", encoding="utf-8")


def plan(path: Path, _canary: Path) -> None:
    """What begins as TensorRT-RTX's engines do. Made of native code, it would run; none is made
    here without a GPU to run it."""
    path.write_bytes(b"vtrt" + bytes(60))


def inputs(problem: JSON, text: str) -> None:
    problem["inputs"] = [text]


def postprocess(problem: JSON, text: str) -> None:
    problem["postprocess"] = [text]


def score(problem: JSON, text: str) -> None:
    """It is asked for after a failing case alone, so the flow is the one that asks."""
    problem["score"] = text


def check(problem: JSON, text: str) -> None:
    problem["check"] = f"python {text} {{model}}"
    problem["folder"] = problem.get("folder") or str(Path(problem["model"]).parent)


def engine(problem: JSON, text: str) -> None:
    problem["engine"] = f"command:run=python {text} {{model}} {{inputs}} {{outputs}}"
    problem["folder"] = problem.get("folder") or str(Path(problem["model"]).parent)


def pytorch(problem: JSON, text: str) -> None:
    engine(problem, text)
    problem["engine"] = f"torch:program=python {text}"


def around(name: str, places: str) -> Callable[[JSON, str], None]:
    """One of the commands beside that one; ``places``: what must stand in it."""

    def named(problem: JSON, text: str) -> None:
        commands = {name: f"python {text}{places}", "run": "true {model} {inputs} {outputs}"}
        problem["engine"] = "command:" + ",".join(
            f"{key}={commands[key]}" for key in sorted(commands)
        )
        problem["folder"] = problem.get("folder") or str(Path(problem["model"]).parent)

    return named


def option(field: str, engine: str) -> Callable[[JSON, str], None]:
    def name(problem: JSON, text: str) -> None:
        problem[field] = f"{engine}={text}"

    return name


# One for each kind that the gate knows; a test holds the two against each other.
PAYLOADS: dict[str, Payload] = {
    "data loader script": Payload(".py", script, inputs),
    "postprocess script": Payload(".py", script, postprocess),
    "score script": Payload(
        ".py", script, score, code=False
    ),  # nothing of the flow accuracy scores
    "check command": Payload(".py", script, check),
    "engine command": Payload(".py", script, engine),
    "build command": Payload(".py", script, around("build", " {model} {engine}")),
    "version command": Payload(".py", script, around("version", "")),
    "PyTorch program": Payload(".py", script, pytorch),
    "library of custom operators": Payload(
        ".so", library, option("reference", "onnxruntime:custom_ops")
    ),
    "execution provider": Payload(
        ".so", library, option("reference", "onnxruntime:provider_library")
    ),
    "library in the provider's options": Payload(
        ".so", library, option("reference", "onnxruntime:provider_options=backend_path"), code=False
    ),  # no provider of the CPU build reads it
    "engine setting": Payload(
        ".csv",
        cache,
        option("reference", "onnxruntime:session_config=session.collect_node_memory_stats_to_file"),
        code=False,
    ),  # it writes the file, and not the canary
    "library of plugins": Payload(".so", library, option("engine", "tensorrt:plugins"), code=False),
    "float original": Payload(".onnx", model, option("reference", "onnxruntime:model"), code=False),
    "golden outputs": Payload(".py", script, option("reference", "golden:files")),
    "built engine": Payload(".plan", plan, option("engine", "tensorrt_rtx:plan"), code=False),
    "timing cache": Payload(".cache", cache, option("engine", "tensorrt:timings"), code=False),
    "calibration cache": Payload(
        ".cache", cache, option("engine", "tensorrt:calibration"), code=False
    ),
}
LISTS = (
    "library of custom operators",
    "execution provider",
    "library of plugins",
    "golden outputs",
)
COMMANDS = (
    "check command",
    "engine command",
    "build command",
    "version command",
    "PyTorch program",
)
RUN = ("data loader script", "postprocess script", *COMMANDS)


class Forged(NamedTuple):
    """A forged session. ``words``: what the victim adds to a command that takes
    ``--yes-run-scripts``."""

    session: Path
    canary: Path
    words: tuple[str, ...] = ()


class Bench(NamedTuple):
    """Where one forgery is made: the session, a folder of the victim's, one that a stranger can
    write to, the canary."""

    session: Path
    own: Path
    strange: Path
    canary: Path


def released(folder: Path) -> Path:
    """A finished session of an earlier release, which holds no models: enough for doors that stay
    shut."""
    with zipfile.ZipFile(GOLDEN) as archive:
        archive.extractall(folder)
    return folder / "session"


def bench(folder: Path, base: Path) -> Bench:
    """A copy of the finished session ``base``."""
    for name in ("own", "strange"):
        (folder / name).mkdir(parents=True)
    shutil.copytree(base, folder / "session")
    return Bench(folder / "session", folder / "own", folder / "strange", folder / "canary")


def edit(at: Bench, change: Callable[[JSON], object]) -> None:
    """Change the problem in ``session.json``, and mend the checksum."""
    path = at.session / folders.DESCRIPTION
    head = json.loads(path.read_bytes())
    change(head["problem"])
    signed(path, head)


def signed(path: Path, head: JSON) -> None:
    rest = {name: value for name, value in head.items() if name != "crc"}
    path.write_text(json.dumps({**rest, "crc": folders.checksum(rest)}), encoding="utf-8")


def problem_of(at: Bench) -> Problem:
    return folders._described(at.session).problem


# -- ways of hiding it: each makes the forgery, or says that it means nothing for this kind


class Pointless(Exception):
    """This way means nothing for this kind of thing."""


def at_place(at: Bench, kind: str, folder: Path, text: str = "{path}", name: str = "evil") -> Path:
    """Write the payload into the folder and name it by ``text``."""
    payload = PAYLOADS[kind]
    path = folder / f"{name}{payload.suffix}"
    payload.write(path, at.canary)
    edit(
        at,
        lambda problem: payload.name(
            problem, text.format(path=path, file=path.name, folder=folder)
        ),
    )
    return path


def inside(at: Bench, kind: str) -> None:
    at_place(at, kind, at.session)


def elsewhere(at: Bench, kind: str) -> None:
    at_place(at, kind, at.strange)


def relative(at: Bench, kind: str) -> None:
    at_place(at, kind, at.session, "{file}")


def dotted(at: Bench, kind: str) -> None:
    at_place(at, kind, at.session, "./{file}")


def deeper(at: Bench, kind: str) -> None:
    (at.session / "x=").mkdir()
    at_place(at, kind, at.session / "x=", "x=/{file}")


def named_input(at: Bench, kind: str) -> None:
    if kind != "data loader script":
        raise Pointless
    at_place(at, kind, at.session, "x={path}")


def blank_first(at: Bench, kind: str) -> None:
    at_place(at, kind, at.strange, " {path}")


def blank_last(at: Bench, kind: str) -> None:
    at_place(at, kind, at.strange, "{path} ")


def padded(at: Bench, kind: str) -> None:
    """What the engine strips and the gate did not: ``custom_ops=+ /abs/evil.so``."""
    if kind not in LISTS:
        raise Pointless
    at_place(at, kind, at.strange, "+ {path}")


def padded_inside(at: Bench, kind: str) -> None:
    if kind not in LISTS:
        raise Pointless
    at_place(at, kind, at.session, "+ {file}")


def parents(at: Bench, kind: str) -> None:
    at_place(at, kind, at.strange, f"{at.strange}/../{at.strange.name}/{{file}}")


def slashes(at: Bench, kind: str) -> None:
    at_place(at, kind, at.strange, "{folder}//{file}")


def linked(at: Bench, kind: str) -> None:
    """Through a link to a folder, of a file that the victim has agreed to under its own name."""
    path = at_place(at, kind, at.strange)
    trust.remember(trust.items(problem_of(at)))
    (at.own / "link").symlink_to(at.strange)
    edit(at, lambda problem: PAYLOADS[kind].name(problem, str(at.own / "link" / path.name)))


def missing(at: Bench, kind: str) -> None:
    at_place(at, kind, at.strange).unlink()


def swapped(at: Bench, kind: str) -> None:
    """Another content at a place that the victim has agreed to."""
    if kind == "engine setting":  # the words are all that there is
        raise Pointless
    payload = PAYLOADS[kind]
    path = at_place(at, kind, at.own)
    path.write_bytes(path.read_bytes() + b"\n")
    trust.remember(trust.items(problem_of(at)))
    payload.write(path, at.canary)


def known_elsewhere(at: Bench, kind: str) -> None:
    """The very bytes that the victim has agreed to, at a place of the stranger's, with other
    neighbours."""
    path = at_place(at, kind, at.own)
    trust.remember(trust.items(problem_of(at)))
    other = at.strange / path.name
    shutil.copyfile(path, other)
    edit(at, lambda problem: PAYLOADS[kind].name(problem, str(other)))


def other_folder(at: Bench, kind: str) -> None:
    """The same command, agreed to in the victim's folder, in a folder with a ``check.py`` of the
    stranger's."""
    if kind not in COMMANDS:
        raise Pointless
    (at.own / "check.py").write_text("raise SystemExit(1)\n", encoding="utf-8")
    script(at.strange / "check.py", at.canary)
    edit(at, lambda problem: problem.update(folder=str(at.own)))
    edit(at, lambda problem: PAYLOADS[kind].name(problem, "-m check"))
    trust.remember(trust.items(problem_of(at)))
    edit(at, lambda problem: problem.update(folder=str(at.strange)))


def no_folder(at: Bench, kind: str) -> None:
    """Agreed to in one's own folder; in the session it runs in none, where names mean the
    session's."""
    if kind not in COMMANDS:
        raise Pointless
    other_folder(at, kind)
    edit(at, lambda problem: problem.update(folder=""))


def neighbour(at: Bench, kind: str) -> None:
    """A script as it was agreed to, that imports another one, which was changed."""
    if kind not in RUN:
        raise Pointless
    path = at.own / "fine.py"
    path.write_text(
        "import beside\n" + _SCRIPT.format(canary="").split("\n", 2)[2], encoding="utf-8"
    )
    (at.own / "beside.py").write_text("", encoding="utf-8")
    edit(at, lambda problem: PAYLOADS[kind].name(problem, str(path)))
    trust.remember(trust.items(problem_of(at)))
    script(at.own / "beside.py", at.canary)


def shadow(at: Bench, kind: str) -> None:
    """A script as it was agreed to; what it imports from Python is now found beside it."""
    if kind not in RUN:
        raise Pointless
    path = at.own / "fine.py"
    path.write_text(
        "import json\nimport numpy as np\ndef load_data():\n    yield {}\npostprocess_outputs = dict\n"
    )
    edit(at, lambda problem: PAYLOADS[kind].name(problem, str(path)))
    trust.remember(trust.items(problem_of(at)))
    script(at.own / "json.py", at.canary)


def other_function(at: Bench, kind: str) -> None:
    """Another function of a script that was agreed to."""
    if kind not in ("data loader script", "postprocess script"):
        raise Pointless
    path = at.own / "tool.py"
    path.write_text(
        f"import pathlib\ndef load_data():\n    yield {{}}\npostprocess_outputs = dict\ndef wipe(*_):\n"
        f"    pathlib.Path({str(at.canary)!r}).write_text('ran')\n    return []\n",
        encoding="utf-8",
    )
    edit(at, lambda problem: PAYLOADS[kind].name(problem, str(path)))
    trust.remember(trust.items(problem_of(at)))
    edit(at, lambda problem: PAYLOADS[kind].name(problem, f"{path}:wipe"))


def twice(at: Bench, kind: str) -> None:
    """Harmless to who reads the first of two equal keys, and not to who reads the last."""
    clean = json.loads((at.session / folders.DESCRIPTION).read_bytes())["problem"]
    at_place(at, kind, at.session)
    path = at.session / folders.DESCRIPTION
    head = json.loads(path.read_bytes())
    text = json.dumps(head)
    path.write_text(
        text.replace('"problem": {', '"problem": ' + json.dumps(clean) + ', "problem": {', 1),
        encoding="utf-8",
    )


def other_case(at: Bench, kind: str) -> None:
    """Keys in another case: nothing reads them, or the engine refuses them."""
    at_place(at, kind, at.session)
    head = json.loads((at.session / folders.DESCRIPTION).read_bytes())
    problem = head["problem"]
    for key in ("inputs", "postprocess", "check"):
        if key in problem:
            problem[key.capitalize()] = problem[key]
    for key in ("engine", "reference"):
        if ":" in problem.get(key, ""):
            name, _, rest = problem[key].partition(":")
            problem[key] = f"{name}:{rest.split('=', 1)[0].upper()}={rest.split('=', 1)[1]}"
    signed(at.session / folders.DESCRIPTION, head)


def upper_suffix(at: Bench, kind: str) -> None:
    if PAYLOADS[kind].suffix != ".py":
        raise Pointless
    path = at_place(at, kind, at.strange)
    path.rename(path.with_suffix(".PY"))
    edit(at, lambda problem: PAYLOADS[kind].name(problem, str(path.with_suffix(".PY"))))


def look_alike(at: Bench, kind: str) -> tuple[str, ...]:
    """A digest that looks like the right one to a person."""
    at_place(at, kind, at.strange)
    digest = trust.items(problem_of(at))[-1].digest
    if not any(letter in digest for letter in "ace"):
        raise Pointless
    other = digest.replace("a", "\u0430").replace("c", "\u0441").replace("e", "\u0435")
    return (
        "--yes-run-scripts",
        other,
        "--yes-run-scripts",
        digest.upper(),
        "--yes-run-scripts",
        "",
    )


def named(kind: str, path: str) -> JSON:
    """What a problem says that names the payload at this path, and a model."""
    problem: JSON = {"model": "m"}
    PAYLOADS[kind].name(problem, path)
    return problem


def name_beside(at: Bench, kind: str) -> JSON:
    """The same, of one beside the journal."""
    return named(kind, str(at.session / f"evil{PAYLOADS[kind].suffix}"))


def plant_beside(at: Bench, kind: str) -> JSON:
    """The same, with the payload written there."""
    payload = PAYLOADS[kind]
    payload.write(at.session / f"evil{payload.suffix}", at.canary)
    return name_beside(at, kind)


def in_the_journal(at: Bench, kind: str) -> None:
    """Only in probes of the journal; the problem is as clean as it was."""
    named = plant_beside(at, kind)

    def planted(event: JSON) -> JSON:
        probe = event.get("probe")
        if event["kind"] != "probe.started" or not probe:
            return event
        if kind == "data loader script" and probe["op"] == "load-inputs":
            probe["sources"] = named["inputs"]
        elif kind == "postprocess script" and probe["op"] == "measure":
            probe["postprocess"] = named["postprocess"]
        elif kind == "check command" and probe["op"] == "measure":
            event["probe"] = {
                "op": "check",
                "model": probe["model"],
                "command": named["check"],
                "folder": named["folder"],
            }
        else:
            for field in ("engine", "reference"):
                if field in named and field in probe:
                    probe[field] = named[field]
        return event

    signing.rewrite(at.session / journal.NAME, planted)


def in_the_tables(at: Bench, kind: str) -> None:
    """Only in what a replay measures again: the table of decisive probes, under a digest of its
    own."""
    in_the_journal(at, kind)
    named = name_beside(at, kind)
    store = at.session / "artifacts"
    renamed: dict[str, str] = {}
    for path in [p for p in store.rglob("*") if p.is_file()]:
        try:
            rows = json.loads(path.read_bytes())
        except ValueError:
            continue
        if not isinstance(rows, list) or not any(
            isinstance(row, dict) and "probe" in row for row in rows
        ):
            continue
        for row in rows:
            probe = row.get("probe", {})
            for field in ("engine", "reference", "postprocess"):
                if field in named and ("engine" in probe or field == "postprocess"):
                    probe[field] = named[field]
        renamed[path.name] = signing.stored(store, json.dumps(rows).encode())
    signing.rewrite(at.session / journal.NAME, lambda event: signing.exchanged(event, renamed))


def exchanged(found: Any, named: JSON, was: JSON | None = None) -> Any:
    """JSON with all that stands under a name of what is ``named`` exchanged for that, and each
    engine spec of the problem that ``was``, under whatever name it stands."""
    specs = {was[role]: named[role] for role in ("reference", "engine") if was and role in named}
    if isinstance(found, list):
        return [exchanged(each, named, was) for each in found]
    if isinstance(found, dict):
        own = {
            key: named[key]
            for key in found.keys() & named.keys() - {"model"}
            if type(found[key]) is type(named[key])
        }
        return {
            key: own[key] if key in own else exchanged(value, named, was)
            for key, value in found.items()
        }
    return specs.get(found, found) if isinstance(found, str) else found


def in_all_records(at: Bench, kind: str) -> None:
    """In whatever a finished session records, findings and tables and what comes yet; its
    description is clean."""
    named, problem = plant_beside(at, kind), problem_of(at)
    was = {"engine": problem.engine, "reference": problem.reference}
    names: dict[str, str] = {}
    for path in [path for path in (at.session / "artifacts").rglob("*") if path.is_file()]:
        with contextlib.suppress(ValueError):
            names[path.name] = signing.stored(
                at.session / "artifacts",
                json.dumps(exchanged(json.loads(path.read_bytes()), named, was)).encode(),
            )
    signing.rewrite(
        at.session / journal.NAME,
        lambda event: exchanged(signing.exchanged(event, names), named, was),
    )


def in_a_loop(at: Bench, kind: str) -> None:
    """Of a session whose inputs are sequences: what is opened to make their steps."""
    inside(at, kind)
    loop = {"carry": ["*:*"], "carry_token": ["y:x=argmax"], "steps": 2, "force": "free"}
    edit(at, lambda problem: problem.update(loop))


def at_home(at: Bench, kind: str) -> None:
    """A file of the victim's own, which is no script: what is loaded of it, or written over."""
    if kind in ("data loader script", "postprocess script", "score script"):
        raise Pointless
    own = Path.home() / ".bashrc"
    edit(at, lambda problem: PAYLOADS[kind].name(problem, str(own)))


def by_tilde(at: Bench, kind: str) -> None:
    """By words that a shell, or a loader, makes a path of."""
    at_place(at, kind, Path.home(), "~/{file}")


def by_variable(at: Bench, kind: str) -> None:
    at_place(at, kind, Path.home(), "$HOME/{file}")


def in_the_flow(at: Bench, kind: str) -> None:
    """Only in the flow: as its reference, its parameters, and what it hands to its steps."""
    named = plant_beside(at, kind)
    flow = at.session / folders.FLOW
    text = flow.read_text(encoding="utf-8")
    lines = [f"reference: {json.dumps(named.get('reference', 'onnxruntime'))}"]
    lines += [f"params: {json.dumps({k: v for k, v in named.items() if k != 'model'})}"]
    kept = [line for line in text.split("\n") if not line.startswith(("reference:", "params:"))]
    at_line = next(i for i, line in enumerate(kept) if line.startswith("nodes:"))
    signing.flow(at.session, "\n".join([*kept[:at_line], *lines, *kept[at_line:]]))


def in_an_answer(at: Bench, kind: str) -> None:
    """Only in the settings of answers in the journal, which are worked into the problem."""
    named = plant_beside(at, kind)

    def planted(event: JSON) -> JSON:
        if event["kind"] == "question.answered":
            event["settings"] = {
                **event.get("settings", {}),
                **{k: v for k, v in named.items() if k != "model"},
            }
        return event

    signing.rewrite(at.session / journal.NAME, planted)


# What the product keeps on this machine, by the module that says where: what is forged there, or
# why nothing is. A test holds it against the modules.
KEPT = {
    "wizard/config.py": "the user's own settings, which no command writes",
    "wizard/trust/gate.py": "what was agreed to",
    "wizard/session/folder.py": "the sessions",
    "wizard/ladder/environments.py": "releases",
    "engines/backends/tensorrt/kept_timings.py": "timings",
    "engines/backends/tensorrt/switches.py": "names, of which a pattern keeps letters and figures",
}


def in_the_caches(at: Bench, kind: str) -> None:
    """Only in what is kept on this machine: the releases of a ladder, timings of engines."""
    for variable in ("XDG_CACHE_HOME", "XDG_STATE_HOME"):
        os.environ[variable] = str(at.session.parent / variable.lower())
    os.environ["NARROWDOWN_HOME"] = str(at.session.parent)
    release = environments.releases("onnxruntime==0")[0].folder
    assert release
    release.mkdir(parents=True)
    for name in ("sitecustomize.py", "onnxruntime.py", "numpy.py"):
        script(release / name, at.canary)
    timings = kept_timings.cache_file("tensorrt", "10", Device("GPU", "9.0", 1, "13"))
    timings.parent.mkdir()
    PAYLOADS[kind].write(timings, at.canary)
    timings.chmod(0o600)


def modules_beside_the_journal(at: Bench, kind: str) -> None:
    """Modules in the session's folder, in which workers stand, named as what they import."""
    if kind != "data loader script":  # nothing of the kind is needed
        raise Pointless
    for name in {name.partition(".")[0] for name in sys.modules} | {"sitecustomize"}:
        script(at.session / f"{name}.py", at.canary)


def where_one_stands(at: Bench, kind: str) -> None:
    """A file that says that it was agreed to, settings and modules, in the folder that one stands
    in, which relative paths of the environment mean."""
    at_place(at, kind, at.session)
    stood = at.session.parent / "stood"
    os.environ["XDG_STATE_HOME"] = str(stood)
    trust.remember(trust.items(problem_of(at)))
    engine = named(kind, str(at.session / f"evil{PAYLOADS[kind].suffix}")).get("engine", "emulate")
    (stood / "narrowdown" / "config.yaml").write_text(f"engine: {json.dumps(engine)}\n")
    for module in ("sitecustomize", "usercustomize", "onnxruntime", "check"):
        script(stood / f"{module}.py", at.canary)
    os.chdir(stood)
    for variable in ("STATE", "CACHE", "CONFIG", "DATA"):
        os.environ[f"XDG_{variable}_HOME"] = "."


WAYS: dict[str, Callable[[Bench, str], tuple[str, ...] | None]] = {
    "inside the session": inside,
    "at a strange place": elsewhere,
    "relative": relative,
    "./relative": dotted,
    "x=/relative": deeper,
    "NAME=path": named_input,
    "a blank before": blank_first,
    "a blank after": blank_last,
    "+ and a blank": padded,
    "+ and a relative one": padded_inside,
    "..": parents,
    "//": slashes,
    "through a link": linked,
    "not there": missing,
    "another content": swapped,
    "known bytes, other place": known_elsewhere,
    "other folder": other_folder,
    "no folder": no_folder,
    "its neighbour changed": neighbour,
    "a module shadowed": shadow,
    "another function": other_function,
    "a key given twice": twice,
    "keys in another case": other_case,
    ".PY": upper_suffix,
    "look-alike digests": look_alike,
    "in the journal only": in_the_journal,
    "in the tables only": in_the_tables,
    "in the flow only": in_the_flow,
    "in an answer only": in_an_answer,
    "in all records": in_all_records,
    "in the caches only": in_the_caches,
    "modules beside the journal": modules_beside_the_journal,
    "agreed to where one stands": where_one_stands,
    "a file of the home": at_home,
    "in a loop": in_a_loop,
    "by ~": by_tilde,
    "by $HOME": by_variable,
}
# Where the problem itself is clean (``x.py `` is no script), so that a door may open: what is
# hidden must not run all the same.
HIDDEN = (
    "a blank after",
    "keys in another case",
    "in the journal only",
    "in the tables only",
    "in the flow only",
    "in an answer only",
    "in all records",
    "in the caches only",
    "modules beside the journal",
)


def forged(folder: Path, base: Path, kind: str, way: str) -> Forged:
    """The forgery. Raises ``Pointless``."""
    at = bench(folder, base)
    words = WAYS[way](at, kind) or ()
    return Forged(at.session, at.canary, words)


def agreed_to(folder: Path, base: Path, kind: str) -> Forged:
    """No forgery: the same payload, agreed to by the victim, so that it must run where its kind is
    run at all."""
    at = bench(folder, base)
    at_place(at, kind, at.own)
    trust.remember(trust.items(problem_of(at)))
    return Forged(at.session, at.canary)
