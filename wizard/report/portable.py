"""A report that may leave this machine: files by name alone, and no word of whose machine it was."""

from collections.abc import Collection
from pathlib import PurePath
from typing import Any

import msgspec

from wizard.report.document import Report


def portable(report: Report, files: Collection[str], folder: str = "") -> Report:
    """The same facts; a path of one of ``files`` becomes its name, with the folder that it lies in where two have one name. Paths
    into ``folder`` begin there. The host's name goes."""
    taken: dict[str, set[str]] = {}
    for path in files:
        taken.setdefault(PurePath(path).name, set()).add(path)
    names = {
        path: "/".join(PurePath(path).parts[-(1 if len(same) == 1 else 2) :])
        for same in taken.values()
        for path in same
    }
    order = sorted((path for path in names if path != names[path]), key=len, reverse=True)

    def told(value: Any) -> Any:
        if isinstance(value, dict):
            return {told(key): told(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [told(inner) for inner in value]
        if not isinstance(value, str):
            return value
        for path in order:
            value = value.replace(path, names[path])
        return value.replace(f"{folder.rstrip('/')}/", "") if folder.rstrip("/") else value

    plain = msgspec.to_builtins(report)
    plain["environment"] = {
        key: {k: v for k, v in inner.items() if k != "host"} if key == "machine" else inner
        for key, inner in plain["environment"].items()
    }
    return msgspec.convert(told(plain), Report)
