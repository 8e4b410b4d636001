"""What an inputs source names, by its text alone: ``[NAME=]PATH`` or ``[NAME=]SCRIPT.py:FUNCTION``. Opens nothing."""


def split_function(source: str) -> tuple[str, str]:
    """(path, function); the function is ``""`` where none is named."""
    path, colon, function = source.rpartition(":")
    return (path, function) if colon and path.endswith(".py") else (source, "")


def paths(source: str) -> tuple[str, ...]:
    """Every path that the source may mean: as it stands, and what follows ``NAME=``. Which of them is read depends on the
    model's inputs and on what is on disk."""
    path, _ = split_function(source)
    rest = path.partition("=")[2]
    return (path, rest) if rest else (path,)


def scripts(source: str) -> tuple[str, ...]:
    """The Python files among them: what would run."""
    return tuple(path for path in paths(source) if path.lower().endswith(".py"))
