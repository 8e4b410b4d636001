"""From options to a PROBLEM: every value is checked before a session exists, each fault is one
sentence and exit 2 or 4."""

import argparse
import contextlib
import math
import re
import shlex
import shutil
from collections.abc import Iterable
from pathlib import Path, PurePath
from typing import TypeVar

from narrowdown.engines import discovery, installed, options
from narrowdown.engines.checker.command import DEBUG_MODEL, PLACEHOLDERS, join
from narrowdown.engines.compare.judge import METRICS
from narrowdown.engines.compare.tolerance import read_bound
from narrowdown.engines.data import InputProblem, golden_files
from narrowdown.engines.graph import filekind
from narrowdown.engines.nearest import nearest, suggestion
from narrowdown.engines.problem import Exported
from narrowdown.engines.sources import (
    IMAGES,
    INPUT_KINDS,
    paths,
    postprocess_script,
    split_function,
    top_k,
)
from narrowdown.engines.spec import EngineSpec, parse
from narrowdown.engines.store import digest_file, regular
from narrowdown.engines.workers import gpus
from narrowdown.wizard import BadUsage, Missing, config
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.schedulers import LOCAL
from narrowdown.wizard.session.folder import DESCRIPTION

Value = TypeVar("Value")

_INTERPRETERS = ("python", "pypy", "sh", "bash", "dash", "zsh", "ruby", "perl", "node")
LABEL_KINDS = (".npy", ".txt", ".csv")
_HOLE = re.compile(
    r"(?<!\$)\{([a-z]+)\}"
)  # what a checker's command wants put in; not a variable of a shell
_COMPARED = (
    "tolerance",
    "atol",
    "rtol",
    "metric",
    "postprocess",
    "score",
)  # options of the comparison
_READING = ("fail_regex", "fail_code", "ignore_fail_code")  # and of a checker
_EACH_ITS_OWN = ("/dev/fd/", "/dev/std", "/proc/")


def problem_from(arguments: argparse.Namespace) -> Problem:
    """The PROBLEM that the options describe, paths absolute, files digested. Raises Refusal."""
    model = model_file(arguments.model)
    sources = tuple(input_source(text) for text in arguments.inputs)
    defaults = Problem(model=str(model))
    check = checker(arguments.check) if arguments.check else ""
    _exclusive(arguments)
    treated = postprocess(arguments.postprocess)
    scored = score(arguments.score) if arguments.score else ""
    here = getattr(arguments, "executor", LOCAL) == LOCAL
    engine = asked_engine(arguments.engine, here=here)
    given = arguments.reference or defaults.reference
    reference = engine_spec(given, "--reference", here=here) if arguments.reference else given
    _refuse_foreign(model, engine, reference, check)
    script = postprocess_script(treated)
    started = options.commands(engine) + options.commands(reference)
    exported: Exported | None = getattr(arguments, "exported", None)
    runs = check or script or started or exported or any(".py" in source for source in sources)
    specs = (parse(engine), parse(reference))
    program = split_function(exported.source)[0] if exported else ""
    files = [
        str(model),
        *([program] if Path(program).is_file() else ()),
        *(path for source in sources for path in paths(source) if Path(path).is_file()),
        *filter(None, (script, split_function(scored)[0])),
        *(spec.get(name) for spec in specs for name in spec_files(spec)),
    ]
    made = Problem(
        model=str(model),
        engine=engine,
        reference=reference,
        inputs=sources,
        seed=arguments.seed,
        input_shapes=_take_once("--input-shapes", map(shape, arguments.input_shapes)),
        val_range=_take_once("--val-range", map(value_range, arguments.val_range)),
        carry=tuple(arguments.carry),
        carry_token=tuple(arguments.carry_token),
        steps=arguments.steps,
        force=arguments.force or "",
        metric=metric(arguments.metric),
        atol=bounds("--atol", arguments.atol),
        rtol=bounds("--rtol", arguments.rtol),
        tolerance=bounds("--tolerance", arguments.tolerance),
        check=check,
        fail_regex=tuple(map(regex, arguments.fail_regex)),
        fail_code=tuple(arguments.fail_code),
        ignore_fail_code=tuple(arguments.ignore_fail_code),
        postprocess=treated,
        score=scored,
        timeout=arguments.timeout,
        folder=str(Path.cwd()) if runs else "",
        artifacts=tuple(map(artifact, getattr(arguments, "artifacts", ()))),
        capture_bytes=arguments.capture_bytes or defaults.capture_bytes,
        artifact_bytes=arguments.artifact_bytes or defaults.artifact_bytes,
        flow=flow_name(arguments.flow),
        digests={path: digest_file(Path(path)) for path in files},
        exported=exported,
    )
    _refuse_no_loop(made)
    return made


def _refuse_foreign(model: Path, engine: str, reference: str, check: str) -> None:
    """Raise Refusal where the model is in an engine's own format and something else is to run
    it."""
    owner = next((d for d in discovery.engines().values() if model.suffix in d.formats), None)
    if owner is None:
        return
    own = f"'{model.name}' is in {owner.title}'s own format, which {owner.title} alone runs"
    origin = "name the ONNX model that it was converted from"
    if check:
        raise BadUsage(f"{own}; a checker (--check) is given ONNX: {origin}.")
    if parse(engine).name != owner.name:
        raise BadUsage(f"{own}: --engine {owner.name}, or {origin}.")
    held = discovery.find(parse(reference).name)
    if held is None or not (held.name == owner.name or held.recorded):
        raise BadUsage(
            f"{own}, so it is held against {owner.title} at its plainest (--reference {owner.formats[model.suffix]}) or against "
            "golden outputs (--reference golden:FILE)."
        )


def _exclusive(arguments: argparse.Namespace) -> None:
    """Raise Refusal for options of which one makes the other mean nothing."""
    given = [name for name in (*_COMPARED, *_READING) if getattr(arguments, name)]
    for name in given:
        option = f"--{name.replace('_', '-')}"
        if name in _COMPARED and arguments.check:
            raise BadUsage(
                f"--check takes the place of the comparison, so {option} would say nothing: leave one of the two out."
            )
        if name in _READING and not arguments.check:
            raise BadUsage(
                f"{option} says how to read an external checker: give its command with --check too."
            )
        if name in ("atol", "rtol") and (arguments.metric or "elementwise") != "elementwise":
            raise BadUsage(
                f"{option} belongs to the metric elementwise, not to {arguments.metric}: bound that one with --tolerance."
            )
    if arguments.fail_code and arguments.ignore_fail_code:
        raise BadUsage(
            "--fail-code lists all failures already: give either that or --ignore-fail-code, not both."
        )


def _take_once(option: str, pairs: Iterable[tuple[str, Value]]) -> dict[str, Value]:
    """Values by name. Raises Refusal for a name that is given twice."""
    found: dict[str, Value] = {}
    for name, value in pairs:
        if name in found:
            what = f"for '{name}'" if name else "for all"
            raise BadUsage(f"{option} is given twice {what}; leave one out.")
        found[name] = value
    return found


def model_file(text: str) -> Path:
    """The model's absolute path. Raises Refusal (exit 2) naming the nearest file of that folder, or
    what the file is instead of a model."""
    path = Path(text).expanduser()
    refuse_strange(path)
    if path.is_file():
        if complaint := filekind.explain_no_model(path):
            raise BadUsage(complaint)
        return path.absolute()
    if (path / DESCRIPTION).is_file():
        raise BadUsage(
            f"'{text}' is a session, not a model; 'narrowdown resume {shlex.quote(text)}' goes on with it."
        )
    if path.is_dir():
        inside = _names(path, "*.onnx")
        named = f", '{Path(text) / inside[0]}' for example" if inside else ""
        raise BadUsage(f"'{text}' is a folder; name the ONNX file inside it{named}.")
    raise BadUsage(f"There is no model '{text}'.{_near(path, '*.onnx')}")


def refuse_strange(path: Path, said: str = "") -> None:
    """Raise Refusal (exit 2) for what is no file (a pipe, a device) or an endless one, before
    anybody waits for it, and for a name that means something else in the worker that would read it.
    ``said`` comes before the sentence."""
    if fault := regular.fault(path):
        raise BadUsage(f"{said}'{path}' {fault}.")
    if str(path).startswith(_EACH_ITS_OWN):
        raise BadUsage(f"{said}'{path}' is another file in every process; name the file itself.")


def input_source(text: str) -> str:
    """An input source, its path absolute; ``NAME=path``, or ``NAME:path`` as in trtexec's
    ``--loadInputs``, names the input of a file with one array. Raises Refusal (exit 2)."""
    for given, named, rest in (text.partition("="), text.partition(":")):
        place = Path(split_function(rest)[0]).expanduser()
        a_file = place.suffix.lower() in INPUT_KINDS or (named and place.is_dir())
        if (
            named
            and "/" not in given
            and not given.endswith(".py")
            and a_file
            and not Path(text).expanduser().exists()
        ):
            return f"{given}={input_source(rest)}"
    name, function = split_function(text)
    path = Path(name).expanduser()
    refuse_strange(path)
    if not path.exists():
        raise BadUsage(f"There is no inputs file '{name}'.{_near(path, '*')}")
    if path.is_file() and path.suffix.lower() not in INPUT_KINDS:
        kinds = ", ".join(INPUT_KINDS)
        raise BadUsage(
            f"'{name}' is not a kind of inputs file that can be read; give one of {kinds}."
        )
    # What runs is named by where it really lies: a session's path must not be able to mean another
    # file later.
    whole = path.resolve() if path.suffix.lower() == ".py" else path.absolute()
    return f"{whole}:{function}" if function else str(whole)


def postprocess(texts: Iterable[str]) -> tuple[str, ...]:
    """What is done to outputs before they are compared: one script, its path absolute, or top-K of
    different outputs. Raises Refusal (exit 2)."""
    given = tuple(texts)
    largest = [found for text in given if (found := top_k(text))]
    _take_once("--postprocess", ((each.output, each) for each in largest))
    if len(largest) == len(given):
        return given
    if len(given) > 1:
        raise BadUsage(
            "--postprocess takes one script, or top-K of one output or several: leave the rest out."
        )
    if split_function(given[0])[0][-3:] != ".py":
        raise BadUsage(
            f"--postprocess: '{given[0]}' is neither SCRIPT.py[:function] nor [output:]top-K[,axis=A], for example top-5."
        )
    return (place_script(given[0], "--postprocess: ", "There is no postprocess script"),)


def score(text: str) -> str:
    """What says how good outputs are: a script's function, or a file of labels, its path absolute.
    Raises Refusal (exit 2)."""
    if Path(split_function(text)[0]).suffix not in (".py", *LABEL_KINDS):
        raise BadUsage(
            f"--score: '{text}' is neither SCRIPT.py[:function] nor labels ({', '.join(LABEL_KINDS)}: whole numbers)."
        )
    return place_script(text, "--score: ", "--score: there is no file")


def place_script(text: str, said: str, missing: str) -> str:
    """A file, and perhaps a function of it, the path where it really lies. ``said`` and ``missing``
    as in ``require_file``. Raises Refusal (exit 2)."""
    name, function = split_function(text)
    path = Path(name).expanduser()
    require_file(path, said, f"{missing} '{name}'", f"*{path.suffix}")
    return f"{path.resolve()}:{function}" if function else str(path.resolve())


def require_file(path: Path, said: str, missing: str = "", pattern: str = "*") -> None:
    """Raise Refusal (exit 2) for what is no file, with the nearest name of that ``pattern``.
    ``said`` comes before the sentence, where ``missing`` does not say it."""
    refuse_strange(path, said)
    if not path.is_file():
        raise BadUsage(
            f"{missing or f'{said}{path}: there is no such file'}.{_near(path, pattern)}"
        )


def digest_score(scored: str) -> dict[str, str]:
    """The file of ``score`` with its sha256."""
    path, _ = split_function(scored)
    return {path: digest_file(Path(path))}


def changed_since(problem: Problem, began: float) -> tuple[str, ...]:
    """The model and the inputs, by path, that are not what they were when the session began, at a
    time of ``time.time()``. What was written before then is not read, and what is gone or cannot be
    read does not count: the session has copies."""
    changed = []
    for path in (
        problem.model,
        *(p for p in problem.digests if p != problem.model and Path(p).suffix != ".py"),
    ):
        recorded = problem.digests.get(path, "")
        with contextlib.suppress(OSError):
            newer = Path(path).stat().st_mtime > began
            if recorded and newer and digest_file(Path(path)) != recorded:
                changed.append(path)
    return tuple(changed)


def asked_engine(text: str | None, *, here: bool = True) -> str:
    """The spec of ``--engine``, else of the user's settings, else what is usual on this machine.
    ``here``: as in ``engine_spec``. Raises Refusal."""
    if text:
        return engine_under_test(text, here=here)
    settings = config.load()
    if settings.engine:
        return engine_under_test(settings.engine, f"{settings.path}: engine", here=here)
    return usual_engine()[0]


def usual_engine() -> tuple[str, str]:
    """(the spec, why that one, half a sentence) of the engine that is asked where none is named:
    what models are deployed on where its package and a GPU are here, else the one that runs
    anywhere."""
    why = []
    for declared in discovery.engines().values():
        if not declared.deployed or declared.hidden or declared.refusal:
            continue
        title = declared.title or declared.name
        if not installed.importable(declared.package):
            why.append(f"{title} is not installed here")
        elif gpus.list_gpus():
            return engine_under_test(declared.name), f"{title} and a GPU are here"
        else:
            why.append(f"{title} is here, and no GPU")
    return Problem(model="").engine, " and ".join(why)


def say_usual(arguments: argparse.Namespace) -> str:
    """What is said where nobody has named the engine, and how to; "" where somebody has, or where a
    checker asks none."""
    asks_none = arguments.check and not re.search(r"{(inputs|expected)}", arguments.check)
    if arguments.engine or asks_none or config.load().engine:
        return ""
    spec, why = usual_engine()
    named = f"No engine was named, so {spec} is the one under test ({why})."
    return f"{named} --engine NAME names another; 'narrowdown engines' lists them."


def engine_under_test(text: str, option: str = "--engine", *, here: bool = True) -> str:
    """The spec of ``option``, with what its declaration says of an engine under test unless told
    otherwise. ``here``: as in ``engine_spec``. Raises Refusal."""
    spec = parse(engine_spec(text, option, here=here))
    if options.declared_as(spec.name).recorded:
        raise BadUsage(
            f"{option}: {spec.name} computes nothing; it is a reference: --reference {text}, with an engine here."
        )
    for option, value in options.declared_as(spec.name).under_test:
        if not spec.get(option):
            spec = spec.with_option(option, value)
    return str(spec)


def engine_spec(text: str, option: str, *, here: bool = True) -> str:
    """The canonical spec. ``here`` False: the hosts of a cluster run it, and each of them says
    whether it has it. Raises Refusal: exit 2 for an unknown name, key or value, exit 4 where the
    engine is not installed."""
    try:
        spec = options.check(text)
    except options.BrokenEngine as problem:
        raise Missing(f"{option}: {problem}") from None
    except ValueError as problem:
        raise BadUsage(f"{option}: {problem}") from None
    declared = options.declared_as(spec.name)
    if here and (absent := _say_absent(spec.name)):
        raise Missing(f"{option}: {absent}")
    for name in spec_files(spec):
        path = Path(spec.get(name)).expanduser()
        missing = f"{option}: {name}={spec.get(name)}: there is no such file"
        require_file(path, f"{option}: ", missing, "*.onnx")
        spec = spec.with_option(name, str(path.resolve()))
    if lacking := next((name for name in declared.required if not spec.get(name)), ""):
        lacks = (
            f"nothing follows '{spec.name}:'"
            if lacking == declared.bare
            else f"{spec.name} needs {lacking}="
        )
        raise BadUsage(f"{option}: {lacks}. {declared.needs}")
    for chosen in options.options_with(spec.name, "command"):
        if words := spec.get(chosen.name):
            started = program(words, f"{option}: {chosen.name}=", chosen.holes)
            spec = spec.with_option(chosen.name, started)
    return str(_place_libraries(spec, option))


def _place_libraries(spec: EngineSpec, option: str) -> EngineSpec:
    """The spec with its libraries by absolute paths, as a worker runs in a folder of its own.
    Raises Refusal (exit 2)."""

    def place(path: str) -> str:
        return str(Path(path).expanduser().resolve())

    declared = options.declared_as(spec.name)
    for chosen in options.options_with(spec.name, "file", "library", "list"):
        given = options.split_paths(spec.get(chosen.name))
        if chosen.type == "file" or not given:
            continue
        if chosen.type == "library":
            placed = tuple(map(place, given))
            if declared.recorded:
                recorded = (recorded_files(Path(path), option) for path in placed)
                placed = tuple(str(file) for files in recorded for file in files)
            found = placed
        else:
            placed = options.with_libraries(given, place)
            found = tuple(path for pair in placed for path in options.libraries(pair))
        for path in found:
            require_file(Path(path), f"{option}: {chosen.name}=")
        spec = spec.with_option(chosen.name, "+".join(placed))
    return spec


def recorded_files(path: Path, option: str) -> list[Path]:
    """The files of golden outputs that a path stands for. Raises Refusal (exit 2)."""
    refuse_strange(path, f"{option}: ")
    if not path.exists():
        raise BadUsage(f"{option}: there is no file '{path}'.{_near(path, '*')}")
    try:
        found = golden_files.list_golden_files(path)
    except (InputProblem, OSError) as problem:
        raise BadUsage(f"{option}: {problem}") from None
    if wrong := next(
        (file for file in found if file.suffix.lower() not in golden_files.KINDS), None
    ):
        kinds = ", ".join(golden_files.KINDS)
        raise BadUsage(
            f"{option}: '{wrong.name}' is no file of outputs that can be read; give one of {kinds}."
        )
    return [file.resolve() for file in found]


def require_engines(problem: Problem, executor: str = LOCAL, said: str = "") -> None:
    """Ask, before anything is made, whether what the PROBLEM would be measured with is installed
    where ``executor`` runs it; the hosts of a cluster say so themselves. ``said``: what the
    sentence begins with. Raises Refusal (exit 4)."""
    pictures = [
        path for source in problem.inputs for path in paths(source) if _holds_images(Path(path))
    ]
    if pictures and executor == LOCAL and not installed.importable("PIL"):
        raise Missing(
            f"{said}'{pictures[0]}': images need pillow; {installed.command('pip install pillow')} brings it."
        )
    for text in (
        (problem.engine, problem.reference) if executor == LOCAL and not problem.check else ()
    ):
        try:
            absent = _say_absent(parse(text).name)
        except ValueError as unknown:
            absent = str(unknown)
        if absent:
            raise Missing(f"{said}{absent}")


def _holds_images(path: Path) -> bool:
    inside = path.iterdir() if path.is_dir() else (path,)
    return any(one.suffix.lower() in IMAGES for one in inside)


def _say_absent(name: str) -> str:
    """That the package of an engine is not on this machine, and what brings it; "" where it is.
    Raises ``ValueError``."""
    declared = options.declared_as(name)
    if installed.importable(declared.package):
        return ""
    return f"{name} is not installed here; {installed.command(declared.install)} brings it."


def spec_files(spec: EngineSpec) -> list[str]:
    """Names of the options that the spec gives and that are files."""
    return [o.name for o in options.options_with(spec.name, "file") if spec.get(o.name)]


def checker(command: str) -> str:
    """The external checker's command with the paths of files that exist made absolute, as it runs
    in a folder of its own.

    Raises Refusal: exit 2 when it cannot be split or misspells what is put in, exit 4 when it
    cannot be started.
    """
    for word in _HOLE.findall(command):
        if word not in PLACEHOLDERS and (near := nearest(word, PLACEHOLDERS)):
            holes = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
            raise BadUsage(
                f"--check: nothing is put in for '{{{word}}}'. Did you mean '{{{near}}}'? Known: {holes}."
            )
    return _startable(command, "--check", "checker")


def program(command: str, option: str, holes: Iterable[str]) -> str:
    """The same of a program that an engine starts, in which each of ``holes`` must stand. Raises
    Refusal."""
    if missing := [hole for hole in holes if f"{{{hole}}}" not in command]:
        raise BadUsage(f"{option}'{command}' does not say where {{{missing[0]}}} goes.")
    return join(shlex.split(_startable(command, option.rstrip("="), "program")))


def _startable(command: str, option: str, who: str) -> str:
    try:
        words = shlex.split(command)
    except ValueError as problem:
        raise BadUsage(f"{option}: '{command}' cannot be split into words: {problem}.") from None
    if not words:
        raise BadUsage(f"{option} needs a command.")
    found = shutil.which(words[0])
    if found is None:
        raise Missing(f"The {who} '{words[0]}' {_not_startable(Path(words[0]))}")
    if fault := regular.fault(found):
        raise Missing(f"The {who} '{words[0]}' cannot be started: it {fault}.")
    script = words[1] if len(words) > 1 and Path(found).name.startswith(_INTERPRETERS) else ""
    if script.endswith((".py", ".sh")) and not Path(script).exists():
        near = _near(Path(script), f"*{Path(script).suffix}")
        raise Missing(f"The {who}'s script '{script}' was not found.{near}")
    return shlex.join(
        str(Path(w).absolute())
        if Path(w).is_file() and (i or "/" in w) and Path(w).name != DEBUG_MODEL
        else w
        for i, w in enumerate(words)
    )


def _not_startable(path: Path) -> str:
    """Why a command that is not found is none, as the end of a sentence."""
    if path.is_dir():
        return "is a folder; name the program in it."
    if path.exists():
        return f"is not executable; make it so (chmod +x {shlex.quote(str(path))}), or name its interpreter first."
    return "was not found; give a command that can be started, with its full path if need be."


def artifact(name: str) -> str:
    """A file that a checker writes into the folder that it runs in, or that a build leaves. Raises
    Refusal (exit 2)."""
    path = PurePath(name)
    if not path.name or path.is_absolute() or ".." in path.parts:
        raise BadUsage(
            f"--artifacts: '{name}' is not a file below the folder that the check runs in; name it from there."
        )
    return str(path)


def shape(text: str) -> tuple[str, tuple[int, ...]]:
    """``name:[1,3,224,224]``; the name may hold colons. Raises Refusal."""
    match = re.fullmatch(r"(?P<name>.+):\[(?P<dims>[\d\s,]*)\]", text)
    if not match:
        raise BadUsage(
            f"--input-shapes: '{text}' is not name:[d,d], for example image:[1,3,224,224]."
        )
    return match["name"], tuple(int(part) for part in match["dims"].split(",") if part.strip())


def _refuse_no_loop(problem: Problem) -> None:
    """Raise Refusal for options of a loop where there is none, or where it cannot be run."""
    loops = problem.carry or problem.carry_token
    faults = (
        (
            (problem.steps or problem.force) and not loops,
            "--steps and --force are of a loop: say what goes back with --carry.",
        ),
        (loops and problem.check, "--carry: a checker runs single models, and no loop."),
        (
            loops and options.recorded(problem.reference),
            "--carry: a loop needs a reference that computes; golden outputs are of given steps.",
        ),
    )
    for wrong, said in faults:
        if wrong:
            raise BadUsage(said)


def value_range(text: str) -> tuple[str, tuple[int | float, int | float]]:
    """``name:[lo,hi]``, or ``[lo,hi]`` for every input (the name ``""``). Whole numbers stay exact.
    Raises Refusal."""
    match = re.fullmatch(r"(?:(?P<name>.+):)?\[(?P<low>[^,]+),(?P<high>[^,]+)\]", text)
    try:
        low, high = (_number(match["low"]), _number(match["high"])) if match else (1, 0)
    except ValueError:
        low, high = 1, 0
    # NaN fails each comparison.
    if match is None or not (low <= high and abs(low) < math.inf and abs(high) < math.inf):
        raise BadUsage(
            f"--val-range: '{text}' is not name:[low,high] with two finite numbers, low at most high."
        )
    return match["name"] or "", (low, high)


def _number(text: str) -> int | float:
    try:
        whole = int(text)
    except ValueError:
        return float(text)
    return (
        whole if -(2**63) <= whole < 2**64 else float(whole)
    )  # what JSON and every integer type can hold


def bounds(option: str, texts: Iterable[str]) -> dict[str, float]:
    """``value`` or ``output:value``, by output name; ``""`` is the default for all."""
    return _take_once(option, (_bound(option, text) for text in texts))


def _bound(option: str, text: str) -> tuple[str, float]:
    name, _, number = text.rpartition(":")
    try:
        value = read_bound(number)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise BadUsage(
            f"{option}: '{text}' is not a number of 0 or more, or a share such as 1%, alone or as output:number."
        )
    return name, value


def metric(name: str | None) -> str:
    if name and name not in METRICS:
        raise BadUsage(
            f"'{name}' is not a metric.{suggestion(name, METRICS, ' ')} Known: {', '.join(METRICS)}."
        )
    return name or ""


def regex(text: str) -> str:
    """A regular expression as it is. Raises Refusal for what is none."""
    try:
        re.compile(text)
    except re.error as problem:
        raise BadUsage(f"--fail-regex: '{text}' is not a regular expression: {problem}.") from None
    return text


def flow_name(text: str) -> str:
    """A shipped flow's name as it is; a file's path made absolute. Raises Refusal where there is no
    such file."""
    path = Path(text).expanduser()
    if path.suffix in (".yaml", ".yml") or "/" in text:
        refuse_strange(path)
        if not path.is_file():
            if path.is_dir():
                raise BadUsage(f"'{text}' is a folder; name the flow file inside it.")
            raise BadUsage(f"There is no flow file '{text}'.{_near(path, '*.y*ml')}")
        return str(path.absolute())
    return text


def _near(path: Path, pattern: str) -> str:
    """The nearest name beside a path that is not there, as a sentence."""
    if path.is_symlink():
        return " It is a link to a file that is gone."
    return (
        suggestion(
            path.name, [name for name in _names(path.parent, pattern) if name != path.name], " "
        )
        or " Check the path."
    )


def _names(folder: Path, pattern: str) -> list[str]:
    try:
        return sorted(entry.name for entry in folder.glob(pattern))[:1000]
    except OSError:
        return []
