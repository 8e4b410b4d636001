"""The command line: ``narrowdown``. Each command group is a module of its own, imported only when
its command is given."""

from narrowdown.wizard.cli.entry import main

__all__ = ["main"]
