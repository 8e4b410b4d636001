"""Every engine by name. Importing this package loads no native library; making an engine does."""

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

from narrowdown.engines import installed, options
from narrowdown.engines.declaration import Declaration
from narrowdown.engines.faults import say_in_one_line
from narrowdown.engines.spec import EngineSpec

if TYPE_CHECKING:
    from narrowdown.engines.backends.base import Engine


def make(spec: str | EngineSpec) -> "Engine":
    """The engine of a spec. Raises ``EngineMissing`` where it is not installed, cannot be loaded or
    has no device, ``ValueError`` for a wrong spec, ``NotAgreed`` for what of the spec was not
    agreed to or has changed; all with a sentence."""
    from narrowdown.engines.backends.base import EngineMissing
    from narrowdown.engines.data import (
        held,  # here, as whoever checks a spec imports this package for a declaration alone
    )

    checked = options.check(spec)
    declared = options.declared_as(checked.name)
    if not installed.importable(declared.package):
        raise EngineMissing(say_absent(declared))
    for _, file in options.loaded(str(checked)):
        if Path(file).exists():  # else the engine itself says what is missing
            held.digest(file)
    for kind, words in options.commands(str(checked)) + options.settings(str(checked)):
        held.permit(kind, words)
    try:
        module = importlib.import_module(declared.module)
    except Exception as error:
        again = installed.command(declared.install)
        raise EngineMissing(
            f"{declared.name} is installed but does not load ({say_in_one_line(error)}); install it again: {again}."
        ) from error
    engine: Engine = module.make(checked)
    for option in options.options_with(checked.name, "file"):
        if file := checked.get(option.name):
            import msgspec

            # What is agreed to, which is what will be read: no other content can be taken for it.
            fingerprint = f"{engine.info.fingerprint}-{held.digest(file)[:16]}"
            engine.info = msgspec.structs.replace(engine.info, fingerprint=fingerprint)
    return engine


def say_absent(declared: Declaration) -> str:
    """What to say where an engine cannot be had."""
    if declared.refusal:
        return f"{declared.refusal}."
    lacks = (
        f"{declared.name} is not installed; install it with: {installed.command(declared.install)}"
    )
    return f"{lacks}. {declared.needs}" if declared.needs else lacks
