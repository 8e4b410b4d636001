"""What a PROBLEM would run or load, with everything that consent to it covers: paths, digests, the
folder that it runs in."""

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from narrowdown.engines import discovery, options
from narrowdown.engines.consent import CHECK, LOADER, POSTPROCESS, SCORE, Permit
from narrowdown.engines.sources import postprocess_script, score_script, scripts, split_function
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.trust.command_files import command_files
from narrowdown.wizard.trust.reading import digest, head, imported

# Every kind of thing that can run or be loaded; those of engine specs by their declared options.
KINDS = (
    LOADER,
    POSTPROCESS,
    SCORE,
    CHECK,
    options.SETTING,
    *dict.fromkeys(
        o.what
        for name in discovery.ours()
        for kinds in (("command",), ("file", "library"), ("list",))
        for o in options.options_with(name, *kinds)
    ),
)
_SHOWN = 5  # first lines of a script


class Item(Permit, frozen=True):
    """Something that would run or be loaded, with its files as they are *now*; one that is not
    there is left out. ``path``: where it lies, the command itself for one. ``first_lines``: of a
    script, or the command itself. ``command``: it is words, not a file: a command line, a setting
    of an engine. ``fault``: why it cannot be agreed to as it is written, the end of a sentence; ""
    where it can."""

    path: str = ""
    first_lines: tuple[str, ...] = ()
    command: bool = False
    fault: str = ""

    @property
    def key(self) -> str:
        """What is remembered: sha256 of its kind, its name, its folder and its files with their
        content."""
        whole = [self.kind, self.name, self.folder, sorted(self.files.items())]
        return hashlib.sha256(msgspec.json.encode(whole)).hexdigest()

    @property
    def digest(self) -> str:
        """What a person names with ``--yes-run-scripts``: the file's own sha256 where it is all
        that is covered, else one of everything; "" for a file that is not there, which no digest
        stands for."""
        if self.command:
            return self.key
        return (
            ""
            if self.path not in self.files
            else self.files[self.path]
            if len(self.files) == 1
            else self.key
        )

    @property
    def permit(self) -> Permit:
        """What allows it."""
        return Permit(self.kind, self.name, self.folder, self.files)

    @property
    def absent(self) -> "Item":
        """The same with none of its files: what can run nothing."""
        return msgspec.structs.replace(self, files={})


def items(problem: Problem, *engines: str) -> list[Item]:
    """What the PROBLEM would run or load, and further ``engines`` in its place."""
    found = [
        _script(LOADER, source, _inputs_path(source), problem.folder)
        for source in problem.inputs
        if scripts(source)
    ]
    if script := postprocess_script(problem.postprocess):
        found.append(_script(POSTPROCESS, ", ".join(problem.postprocess), script, problem.folder))
    if script := score_script(problem.score):
        found.append(_script(SCORE, problem.score, script, ""))
    if problem.check:
        found.append(_command(CHECK, problem.check, problem.folder))
    recorded = problem.exported.recorded if problem.exported else ""
    named = (problem.engine, problem.reference, recorded, *engines)
    specs = dict.fromkeys(filter(None, named))
    of_specs = {item.key: item for spec in specs for item in _of_spec(spec, problem.folder)}
    return [*found, *sorted(of_specs.values(), key=lambda item: (item.kind, item.path))]


def _of_spec(spec: str, folder: str) -> Iterable[Item]:
    for kind, command in options.commands(spec):
        found = _command(kind, command, folder)
        yield msgspec.structs.replace(found, fault=found.fault or _crooked(spec))
    for kind, text in options.settings(spec):
        yield Item(kind, text, path=text, first_lines=(text,), command=True, fault=_crooked(spec))
    for kind, path in options.loaded(spec):
        fault = path_fault(path) or _crooked(spec)
        yield Item(kind, path, "", {} if fault else _digests([path]), path, fault=fault)


def _crooked(spec: str) -> str:
    return (
        ""
        if str(options.check(spec)) == spec
        else f"stands in an engine that is not written plainly, {spec!a}"
    )


def _command(kind: str, command: str, folder: str) -> Item:
    fault = path_fault(folder) if folder else ""
    return Item(
        kind,
        command,
        folder,
        command_files(command, folder),
        command,
        (command,),
        command=True,
        fault=fault,
    )


def _inputs_path(source: str) -> str:
    """The path of a data loader script: what follows ``NAME=``, or all where it is a path from the
    root."""
    path, _ = split_function(source)
    return path if path.startswith("/") or "=" not in path else path.partition("=")[2]


def _script(kind: str, name: str, path: str, folder: str) -> Item:
    fault = path_fault(path) or (path_fault(folder) if folder else "")
    files = {} if fault else _digests([path, *imported(Path(path))])
    return Item(kind, name, folder, files, path, head(path, _SHOWN), fault=fault)


def _digests(paths: Iterable[str | Path]) -> dict[str, str]:
    return {str(path): found for path in paths if (found := digest(path))}


def path_fault(path: str) -> str:
    """Why a path is not the one absolute name of its file, as the end of a sentence; "" where it
    is."""
    try:
        if not path.startswith("/"):
            return "is named from a folder that nobody knows: a session names whole paths"
        if path != os.path.normpath(path) or path.startswith("//"):
            return "is not written plainly (no '..', '.', '//' or '/' at its end)"
        if os.path.realpath(path) != path:
            return f"goes through a link; it really is '{os.path.realpath(path)}'"
    except (OSError, ValueError):
        return "is no path"
    return ""
