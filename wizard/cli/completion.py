"""``narrowdown completion bash|zsh|fish``: a script for the shell, made from the grammar of the command line.

The shell alone answers while one types: the words are in the script, sessions and files are found by the shell itself. A script
of an older version completes the words of that version; make it anew after an upgrade.
"""

import argparse
import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

from engines import discovery
from wizard.cli.arguments import Parser, inner, parser
from wizard.exits import FOUND

Kind: TypeAlias = Literal["", "words", "file", "folder", "session"]

_FILES: Final = (
    "model",
    "inputs",
    "answers",
    "output",
    "file",
    "postprocess",
    "score",
    "good",
    "bad",
    "artifacts",
    "junit",
)
_FOLDERS: Final = ("dir", "art_dir", "python")
_HOME: Final = "${NARROWDOWN_HOME:-${XDG_STATE_HOME:-$HOME/.local/state}/narrowdown/sessions}"


class Word(NamedTuple):
    """An option or a place of a command. ``names``: of the option, () for a place. ``kind``: of its value, "" for any or none."""

    names: tuple[str, ...]
    takes: bool
    kind: Kind
    words: tuple[str, ...]
    help: str


class Verb(NamedTuple):
    """A command: its words after ``narrowdown``, what it does, its options and places, the commands below it."""

    path: tuple[str, ...]
    help: str
    options: tuple[Word, ...]
    places: tuple[Word, ...]
    below: Mapping[str, str]


def completion(arguments: argparse.Namespace) -> int:
    """Print the script."""
    print(SHELLS[arguments.shell](tuple(verbs())), end="")
    return FOUND


def verbs(top: Parser | None = None, path: tuple[str, ...] = ()) -> Iterator[Verb]:
    """Every command of the grammar, the bare ``narrowdown`` first."""
    made = top or parser()
    below = inner(made)
    actions = [a for a in made._actions if not isinstance(a, argparse._SubParsersAction)]
    said = (made.description or "").rstrip(".")
    yield Verb(
        path,
        said,
        tuple(_word(a) for a in actions if a.option_strings),
        tuple(_word(a) for a in actions if not a.option_strings),
        {name: (command.description or "").rstrip(".") for name, command in below.items()},
    )
    for name, command in below.items():
        yield from verbs(command, (*path, name))


def _word(action: argparse.Action) -> Word:
    words: tuple[str, ...] = ()
    kind: Kind = ""
    if action.choices is not None:
        kind, words = "words", tuple(map(str, action.choices))
    elif action.dest in ("engine", "reference"):
        kind, words = "words", tuple(e.name for e in discovery.ours().values() if not e.hidden and not e.refusal)
    elif action.dest in ("session", "sessions"):
        kind = "folder" if action.option_strings else "session"
    elif action.dest in _FILES:
        kind = "file"
    elif action.dest in _FOLDERS:
        kind = "folder"
    said = " ".join((action.help or "").replace("%(choices)s", "").split())
    return Word(tuple(action.option_strings), action.nargs != 0, kind, words, said)


def bash(found: tuple[Verb, ...]) -> str:
    """A function for ``complete -F``."""
    lines = [
        "# narrowdown completion bash > ~/.local/share/bash-completion/completions/narrowdown",
        "_narrowdown() {",
        "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} verb='' word i",
        "    COMPREPLY=()",
        "    for ((i = 1; i < COMP_CWORD; i++)); do",
        "        word=${COMP_WORDS[i]}",
        '        case "$verb/$word" in',
        f"            {'|'.join('/'.join(('', *v.path)) for v in found if v.path)}) verb=$verb/$word ;;",
        "        esac",
        "    done",
        '    case "$verb $prev" in',
    ]
    for verb in found:
        for option in verb.options:
            if option.takes:
                patterns = "|".join(shlex.quote(f"{_slashed(verb)} {name}") for name in option.names)
                lines.append(f"        {patterns}) {_bash_value(option)}; return ;;")
    lines += ["    esac", '    case "$verb" in']
    for verb in found:
        options = [name for option in verb.options for name in option.names]
        lines.append(f"        {shlex.quote(_slashed(verb))})")
        lines.append(
            "            if [[ $cur == -* ]]; then "
            f'COMPREPLY=($(compgen -W {shlex.quote(" ".join(options))} -- "$cur")); return; fi'
        )
        if verb.below:
            lines.append(f'            COMPREPLY=($(compgen -W {shlex.quote(" ".join(verb.below))} -- "$cur"))')
        lines += [f"            {_bash_value(place, more=True)}" for place in verb.places]
        lines.append("            ;;")
    lines += [
        "    esac",
        "}",
        "_narrowdown_sessions() {",
        "    local folder",
        f'    for folder in "{_HOME}"/*/session.json; do',
        '        [[ -e $folder ]] || continue; folder=${folder%/session.json}; printf "%s\\n" "${folder##*/}"',
        "    done",
        "}",
        "complete -o bashdefault -o default -F _narrowdown narrowdown",
    ]
    return "\n".join(lines) + "\n"


def _bash_value(word: Word, *, more: bool = False) -> str:
    into = "COMPREPLY+=" if more else "COMPREPLY="
    match word.kind:
        case "words":
            return f'{into}($(compgen -W {shlex.quote(" ".join(word.words))} -- "$cur"))'
        case "session":
            return f'{into}($(compgen -W "$(_narrowdown_sessions)" -- "$cur") $(compgen -d -- "$cur"))'
        case "file":
            return f'{into}($(compgen -f -- "$cur"))'
        case "folder":
            return f'{into}($(compgen -d -- "$cur"))'
        case _:
            return ":"


def zsh(found: tuple[Verb, ...]) -> str:
    """A ``#compdef`` function, with what each word means."""
    lines = [
        "#compdef narrowdown",
        "# narrowdown completion zsh > a folder of your $fpath/_narrowdown",
        "_narrowdown_sessions() {",
        "    local -a ids",
        f'    ids=("{_HOME}"/*/session.json(N:h:t))',
        "    compadd -a ids",
        "    _files -/",
        "}",
    ]
    for verb in found:
        told = [f"        {shlex.quote(spec)}" for option in verb.options for spec in _zsh_option(option)]
        told += [
            f"        {shlex.quote(f'*:{_zsh_said(p.help)}:{_zsh_value(p)}')}"
            for p in verb.places[-1:]
            if not verb.below
        ]
        lines.append(f"{_function(verb)}() {{")
        if verb.below:
            lines += ["    local -a below", "    below=("]
            lines += [f"        {shlex.quote(f'{name}:{_zsh_said(said)}')}" for name, said in verb.below.items()]
            lines.append("    )")
            depth = len(verb.path) + 2
            lines.append(
                f"    if (( CURRENT == {depth} )) && [[ $words[CURRENT] != -* ]]; then _describe command below; return; fi"
            )
            lines.append(f"    case $words[{depth}] in")
            for name in verb.below:
                lines.append(f"        {name}) {_function(verb)}_{name.replace('-', '_')}; return ;;")
            lines.append("    esac")
        lines += ["    _arguments -S \\", " \\\n".join(told), "}"]
    lines.append('_narrowdown "$@"')
    return "\n".join(lines) + "\n"


def _zsh_option(word: Word) -> list[str]:
    value = f":value:{_zsh_value(word)}" if word.takes else ""
    return [f"*{name}[{_zsh_said(word.help)}]{value}" for name in word.names]


def _zsh_value(word: Word) -> str:
    match word.kind:
        case "words":
            return f"({' '.join(word.words)})"
        case "session":
            return "_narrowdown_sessions"
        case "file":
            return "_files"
        case "folder":
            return "_files -/"
        case _:
            return " "


def _zsh_said(text: str) -> str:
    return "".join(f"\\{c}" if c in "[]:\\" else c for c in text)


def fish(found: tuple[Verb, ...]) -> str:
    """``complete`` lines, each for the command that it belongs to."""
    paths = " ".join("/".join(verb.path) for verb in found if verb.path)
    lines = [
        "# narrowdown completion fish > ~/.config/fish/completions/narrowdown.fish",
        "function __narrowdown_verb",
        "    set -l said (commandline -opc)",
        "    set -e said[1]",
        "    set -l verb",
        "    for word in $said",
        '        string match -q -- "-*" $word; and continue',
        f"        contains -- (string join / $verb $word) {paths}; and set -a verb $word",
        "    end",
        "    string join / $verb",
        "end",
        "function __narrowdown_is",
        "    set -l now (__narrowdown_verb)",
        '    test "$now" = "$argv[1]"',
        "end",
        "function __narrowdown_sessions",
        "    set -l home $NARROWDOWN_HOME",
        "    set -l state $XDG_STATE_HOME",
        '    test -n "$state"; or set state $HOME/.local/state',
        '    test -n "$home"; or set home $state/narrowdown/sessions',
        "    for file in $home/*/session.json",
        "        basename (dirname $file)",
        "    end",
        "end",
    ]
    for verb in found:
        when = f"-n \"__narrowdown_is '{'/'.join(verb.path)}'\""
        for name, said in verb.below.items():
            lines.append(f"complete -c narrowdown {when} -f -a {name} -d {_fish_quoted(said)}")
        for place in verb.places:
            lines.append(f"complete -c narrowdown {when} {_fish_value(place) or '-F'}")
        for option in verb.options:
            names = " ".join(f"-l {n[2:]}" if n.startswith("--") else f"-s {n[1:]}" for n in option.names)
            value = f" -r {_fish_value(option)}".rstrip() if option.takes else ""
            lines.append(f"complete -c narrowdown {when} {names}{value} -d {_fish_quoted(option.help)}")
    return "\n".join(lines) + "\n"


def _fish_value(word: Word) -> str:
    match word.kind:
        case "words":
            return f"-f -a {_fish_quoted(' '.join(word.words))}"
        case "session":
            return "-f -a '(__narrowdown_sessions)'"
        case "file":
            return "-F"
        case "folder":
            return "-f -a '(__fish_complete_directories)'"
        case _:
            return ""


def _fish_quoted(text: str) -> str:
    """fish has ``\\\\`` and ``\\'`` inside single quotes, and no other escape there."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _slashed(verb: Verb) -> str:
    return "".join(f"/{word}" for word in verb.path)


def _function(verb: Verb) -> str:
    return "_".join(("_narrowdown", *(word.replace("-", "_") for word in verb.path)))


SHELLS: Final[Mapping[str, Callable[[tuple[Verb, ...]], str]]] = {"bash": bash, "zsh": zsh, "fish": fish}
