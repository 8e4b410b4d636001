"""``narrowdown completion bash|zsh|fish``: what the shell completes, answered by the grammar of the
command line itself.

The script that a shell sources hands it the words typed so far; what it prints comes from the
parser, the sessions and the engines of this moment, so that no script grows old. Files are found by
the shell, where nothing else is offered.
"""

import argparse
from collections.abc import Iterable
from typing import Final

from narrowdown.engines import discovery
from narrowdown.wizard.cli.arguments import parser
from narrowdown.wizard.cli.parsing import Parser, inner
from narrowdown.wizard.exits import Exit

_BASH: Final = """\
# narrowdown completion bash > ~/.local/share/bash-completion/completions/narrowdown
_narrowdown() {
    mapfile -t COMPREPLY < <(narrowdown completion bash -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o bashdefault -o default -F _narrowdown narrowdown
"""
_ZSH: Final = """\
#compdef narrowdown
# narrowdown completion zsh > a folder of your $fpath/_narrowdown
local -a found
found=("${(@f)$(narrowdown completion zsh -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
if [[ -n $found ]]; then _describe narrowdown found; else _files; fi
"""
_FISH: Final = """\
# narrowdown completion fish > ~/.config/fish/completions/narrowdown.fish
function __narrowdown_words
    set -l before (commandline -opc)
    set -l now (commandline -ct)
    set -e before[1]
    narrowdown completion fish -- $before "$now" 2>/dev/null
end
complete -c narrowdown -a '(__narrowdown_words)'
"""
SCRIPTS: Final = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def completion(arguments: argparse.Namespace) -> int:
    """Print the script, or what the last of the words may become."""
    typed = arguments.typed[arguments.typed[:1] == ["--"] :]
    for word, said in find_words(typed) if typed else ():
        match arguments.shell:
            case "zsh":
                print(word.replace(":", "\\:"), said, sep=":")
            case "fish":
                print(word, said, sep="\t")
            case _:
                print(word)
    print(end="" if typed else SCRIPTS[arguments.shell])
    return Exit.FOUND


def find_words(typed: list[str]) -> list[tuple[str, str]]:
    """(word, what it means) of all that the last of the words typed behind ``narrowdown`` may
    become; it may be empty."""
    *before, now = typed
    made, waiting = parser(), None
    for word in before:
        if waiting is not None:
            waiting = None
        elif word.startswith("-"):
            takes = (a for a in made._actions if word in a.option_strings and a.nargs != 0)
            waiting = next(takes, None)
        else:
            made = inner(made).get(word, made)
    if waiting is not None:
        found = [(word, "") for word in _values(waiting)]
    else:
        found = _options(made) if now.startswith("-") else _places(made)
    return [(word, said) for word, said in found if word.startswith(now)]


def _options(made: Parser) -> list[tuple[str, str]]:
    return [
        (name, " ".join((action.help or "").replace("%(choices)s", "").split()))
        for action in made._actions
        for name in action.option_strings
    ]


def _places(made: Parser) -> list[tuple[str, str]]:
    """The commands below a command, and what may stand in its places."""
    below = [(name, (b.description or "").rstrip(".")) for name, b in inner(made).items()]
    places = (
        a
        for a in made._actions
        if not a.option_strings and not isinstance(a, argparse._SubParsersAction)
    )
    return below + [(word, "") for place in places for word in _values(place)]


def _values(action: argparse.Action) -> Iterable[str]:
    """What an option or a place takes, as far as that is known; none of a file."""
    if action.choices is not None:
        return map(str, action.choices)
    if action.dest in ("engine", "reference"):
        return (e.name for e in discovery.ours().values() if not e.hidden and not e.refusal)
    if action.dest in ("session", "sessions") and not action.option_strings:
        from narrowdown.wizard.session import folder

        return sorted(file.parent.name for file in folder.home().glob("*/session.json"))
    return ()
