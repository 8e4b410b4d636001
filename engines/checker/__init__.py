"""The external checker: what it is given, how it is run, and how all that it starts is ended."""

from engines.declaration import Declaration

DECLARATION = Declaration(
    "command",
    "An external checker in place of engine and comparison.",
    "",
    refusal="'command' is not an engine to build with: give the checker with --check",
)
