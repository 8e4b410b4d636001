"""Taking up a session again: which of its files are still what was written, and making again what
is gone.

A model or inputs of the session are what a probe once made from the user's own files. Where they
are gone, the same probe is asked again; what it makes must have the digest that it had.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from narrowdown.engines.probe import AnyProbe, Import, LoadInputs, Sanitize
from narrowdown.engines.store import Damaged, Store, is_digest, sound
from narrowdown.engines.workers.executor import Prober
from narrowdown.wizard.durations import HOUR
from narrowdown.wizard.runner import progress
from narrowdown.wizard.runner.ledger import Ledger, asked_probe, known_measurement
from narrowdown.wizard.session import MENDING, SessionProblem
from narrowdown.wizard.session.state import State
from narrowdown.wizard.words import count, listing

READ = (
    2 << 30
)  # bytes that are read of a session before it goes on; ``resume --repair`` reads all of it


def examine(ledger: Ledger, *, going_on: bool) -> tuple[str, ...]:
    """What has to be said of the session's files. Captured values and converted weights that are
    damaged are removed: they are made again when they are needed.

    ``going_on``: further probes are to be asked. Raises SessionProblem where a file that they need
    is damaged.
    """
    said = [_shortened(ledger)]
    faults = sound.faults(ledger.store, READ)
    relied = _needed(ledger) if going_on else {}
    needed = {
        name for digest, kind in relied.items() for name in _parts(ledger.store, digest, kind)
    }
    if bad := next((name for name in faults.kept if name in needed), ""):
        raise SessionProblem(
            f"{Damaged(bad, 'is damaged: its bytes are not those that were written')} {MENDING}"
        )
    for name in faults.made:
        (ledger.store.root / name).unlink(missing_ok=True)
    if faults.made:
        said.append(
            f"{count(len(faults.made), 'file')} kept for speed damaged, to be made again: {listing(faults.made)}."
        )
    if faults.kept:
        lost = "what it held" if len(faults.kept) == 1 else "what they held"
        said.append(
            f"Damaged in this session: {listing(faults.kept)}. Where {lost} is needed it is measured again."
        )
    return tuple(filter(None, said))


async def make_again(ledger: Ledger, pool: Prober) -> tuple[str, ...]:
    """Make again the models and the inputs that the steps to come rely on and that are gone; a
    sentence that names them. Raises SessionProblem where that cannot be done."""
    return await _make_all(
        Recorded(ledger.state, ledger.store), _needed(ledger), ledger.store, pool
    )


async def make_again_for(
    probes: Iterable[AnyProbe], state: State, kept: Store, target: Store, pool: Prober
) -> tuple[str, ...]:
    """The same for ``probes``, which ``pool`` is to be asked in the folder ``target``, a copy of
    that of the session of this ``state``, ``kept``."""
    needed: dict[str, str] = {}
    for probe in probes:
        for field, kind in (("model", "model"), ("written", "model"), ("inputs", "inputs")):
            if is_digest(digest := str(getattr(probe, field, ""))):
                needed.setdefault(digest, kind)
    return await _make_all(Recorded(state, kept), needed, target, pool)


class Recorded(NamedTuple):
    """What a session has measured: its state, and where the journal's larger parts lie."""

    state: State
    store: Store


def _shortened(ledger: Ledger) -> str:
    """What the journal lacks at its end, as far as the last snapshot tells."""
    written = (progress.read(ledger.store.root) or {}).get("seq", 0)
    missing = written - ledger.state.seq if isinstance(written, int) else 0
    if missing <= 0:
        return ""
    return (
        f"The journal ends at event {ledger.state.seq}, and {written} were written: the last {count(missing, 'event')} of it "
        "are gone. What they measured is measured again."
    )


def _needed(ledger: Ledger) -> dict[str, str]:
    """Digests that the probes to come rely on, and what each of them is: what the finished steps
    have found, and what a step that is to go on has had made."""
    state, here = ledger.state, ledger.state.here
    findings = state.findings
    needed = {digest: "model" for digest in (findings.original, findings.model) if digest}
    needed |= {findings.inputs: "inputs"} if findings.inputs else {}
    for key in state.known if here is not None and not here.stepped else ():
        probe, made = (
            asked_probe(state, key, ledger.store),
            known_measurement(state, key, ledger.store),
        )
        if (
            isinstance(probe, Import | Sanitize | LoadInputs)
            and made is not None
            and made.status == "ok"
        ):
            kind = "inputs" if isinstance(probe, LoadInputs) else "model"
            needed[str(made.facts[kind])] = kind
    return needed


def _parts(store: Store, digest: str, kind: str) -> tuple[str, ...]:
    """Paths below the session's folder of all that belongs to it, as far as that can be read."""
    if kind == "model":
        name = f"models/{digest}.onnx"
        try:
            return (name, *sound.weights_of(store.root / name))
        except OSError:
            return (name,)
    folder = f"inputs/{digest}"
    return (
        f"{folder}/index.json",
        *(f"{folder}/{file}" for file in sound.arrays_of(store.inputs / digest)),
    )


async def _make_all(
    of: Recorded, needed: Mapping[str, str], target: Store, pool: Prober
) -> tuple[str, ...]:
    made = [
        name
        for digest, kind in needed.items()
        for name in await _make_again(of, digest, kind, target, pool)
    ]
    quoted = [f"'{name}'" for name in made]
    were = "was gone and was" if len(made) == 1 else "were gone and were"
    return (f"{listing(quoted)} of the session {were} made again.",) if made else ()


async def _make_again(
    of: Recorded, digest: str, kind: str, target: Store, pool: Prober, above: tuple[str, ...] = ()
) -> list[str]:
    """Make again, in ``target``, what is gone of a model or of inputs; the files that were.
    ``above``: what is made of it, once it is there. Raises SessionProblem."""
    if not is_digest(digest) or digest in above:
        raise SessionProblem(
            f"The journal says that {digest[:80]!a} was made in this session, which cannot be: take the session from a backup, "
            "or begin a new one."
        )
    gone = [name for name in _parts(target, digest, kind) if not (target.root / name).exists()]
    if not gone:
        return []
    first, copy = (
        Damaged(gone[0], "is gone"),
        f"opy the whole session folder ('{of.store.root}') again",
    )
    probe = _maker(of, digest, kind)
    if probe is None:
        raise SessionProblem(f"{first} C{copy}, or begin a new session.")
    above = (*above, digest)
    if isinstance(probe, Sanitize | LoadInputs):
        await _make_again(of, probe.model, "model", target, pool, above)
    if isinstance(probe, LoadInputs) and probe.base:
        await _make_again(of, probe.base, "inputs", target, pool, above)
    made = await pool.run(probe, HOUR)
    if made.status != "ok":
        raise SessionProblem(f"{first} It could not be made again: {made.message} C{copy}.")
    if made.facts.get(kind) != digest:
        source = (
            getattr(probe, "path", "")
            or ", ".join(getattr(probe, "sources", ()))
            or "what it was made from"
        )
        raise SessionProblem(
            f"{first} It was made from '{source}', which is another one now. Put that back as it was, c{copy}, or begin a new "
            "session."
        )
    return gone


def _maker(of: Recorded, digest: str, kind: str) -> AnyProbe | None:
    """The probe that made the model or the inputs; None where the journal does not hold it."""
    for key in of.state.known:
        measurement = known_measurement(of.state, key, of.store)
        if measurement is not None and measurement.facts.get(kind) == digest:
            probe = asked_probe(of.state, key, of.store)
            if isinstance(probe, Import | Sanitize | LoadInputs):
                return probe
    return None
