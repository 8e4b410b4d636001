"""Sessions with long journals, and many sessions: made from one that was walked, by writing more of
what it holds."""

import shutil
from pathlib import Path

import msgspec

from narrowdown.engines.probe import Measure, key
from narrowdown.wizard.session import journal
from narrowdown.wizard.session.events import AnyEvent, ProbeFinished, ProbeStarted, StepFinished
from narrowdown.wizard.session.folder import DESCRIPTION, checksum


def lengthen(source: Path, target: Path, probes: int) -> None:
    """A copy of a session with so many probes more, each another attempt of one that its last step
    asked, as if it had run them ahead."""
    shutil.copytree(source, target)
    events = list(journal.read(source / journal.NAME))
    last = max(n for n, event in enumerate(events) if isinstance(event, StepFinished))
    asked = {e.key: e for e in events if isinstance(e, ProbeStarted)}
    pairs = [
        (asked[e.key], e)
        for e in events
        if isinstance(e, ProbeFinished)
        and e.measurement is not None
        and isinstance(asked[e.key].probe, Measure)
    ]
    run = getattr(events[last], "run", 0)
    fingerprints: dict[str, str] = {}
    more: list[AnyEvent] = []
    for number in range(probes):
        first, answer = pairs[number % len(pairs)]
        assert isinstance(first.probe, Measure)
        probe = msgspec.structs.replace(first.probe, attempt=1000 + number)
        fingerprints |= {probe.engine: "0", probe.reference: "0"}
        name = key(probe, fingerprints)
        more += [
            msgspec.structs.replace(first, key=name, probe=probe, run=run, speculative=True),
            msgspec.structs.replace(answer, key=name, run=run),
        ]
    written = [*events[:last], *more, *events[last:]]
    at = events[last].ts
    with (target / journal.NAME).open("wb") as file:
        for seq, event in enumerate(written, 1):
            ts = event.ts if seq <= last or seq > last + len(more) else at
            file.write(journal.encode(msgspec.structs.replace(event, seq=seq, ts=ts)))


def multiply(source: Path, root: Path, sessions: int) -> None:
    """So many copies of a session below ``root``, each with an id of its own."""
    fields = msgspec.json.decode((source / DESCRIPTION).read_bytes())
    for number in range(sessions):
        target = root / f"s{number:04}"
        shutil.copytree(source, target)
        own = {**{k: v for k, v in fields.items() if k != "crc"}, "id": target.name}
        (target / DESCRIPTION).write_bytes(msgspec.json.encode({**own, "crc": checksum(own)}))
