"""Checksums and digests mended as the session format documents them: whoever can write a session
can do this."""

import hashlib
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from narrowdown.wizard.session import folder as folders

JSON = dict[str, Any]


def rewrite(path: Path, change: Callable[[JSON], JSON]) -> None:
    """The journal with each event changed and signed again."""
    events = [json.loads(line) for line in path.read_bytes().splitlines()]
    path.write_bytes(b"".join(_signed(change(event)) for event in events))


def _signed(event: JSON) -> bytes:
    body = json.dumps(
        {name: value for name, value in event.items() if name != "crc"}, separators=(",", ":")
    ).encode()
    return body[:-1] + f',"crc":"{zlib.crc32(body):08x}"}}\n'.encode()


def exchanged(event: JSON, names: dict[str, str]) -> JSON:
    """The event with each text that is a key of ``names`` exchanged."""
    text = json.dumps(event)
    for old, new in names.items():
        text = text.replace(old, new)
    found: JSON = json.loads(text)
    return found


def stored(artifacts: Path, data: bytes) -> str:
    digest = hashlib.sha256(data).hexdigest()
    (artifacts / digest[:2]).mkdir(exist_ok=True)
    (artifacts / digest[:2] / digest).write_bytes(data)
    return digest


def flow(session: Path, text: str) -> None:
    """Another flow, pinned as if the session had been begun with it."""
    (session / folders.FLOW).write_text(text, encoding="utf-8")
    path = session / folders.DESCRIPTION
    head = json.loads(path.read_bytes())
    head["flow"] = hashlib.sha256(text.encode()).hexdigest()
    rest = {name: value for name, value in head.items() if name != "crc"}
    path.write_text(json.dumps({**rest, "crc": folders.checksum(rest)}), encoding="utf-8")
