"""What a worker does with each kind of probe. Every failure becomes a measurement that says, in one sentence, what happened."""

import shutil
import signal
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from engines import backends
from engines.backends import command
from engines.backends.base import EngineFault, EngineMissing
from engines.data import captures, polygraphy, samples
from engines.data.captures import ReferenceFailed
from engines.data.problem import InputProblem
from engines.data.store import Store
from engines.graph import external, load, sanitize
from engines.graph.cut import cut, feeds_of, outputs_of
from engines.graph.problem import ModelProblem
from engines.graph.ranges import ALL
from engines.probe import AnyProbe, Check, Describe, Import, Inspect, LoadInputs, Measure, Measurement, Sanitize, Status
from engines.workers import measure

Say = Callable[[str], None]
_TAIL = 8 << 10  # characters of a checker's output that travel with the measurement
_STATUSES = frozenset(msgspec.inspect.type_info(Status).values)  # type: ignore[attr-defined]


def execute(probe: AnyProbe, store: Store, progress: Say) -> Measurement:
    """Answer the probe. Raises no ``Exception``: what it does not expect is status ``error``, with a traceback in the log."""
    begun = time.monotonic()
    try:
        match probe:
            case Inspect():
                return Measurement(facts=msgspec.to_builtins(captures.engine(probe.engine).info))
            case Import():
                return _import(probe, store)
            case Describe():
                return _describe(probe, store, progress)
            case Sanitize():
                return _sanitize(probe, store)
            case LoadInputs():
                return Measurement(facts=samples.load_inputs(probe, load.load(store, probe.model), store))
            case Measure():
                return measure.measure(probe, store, progress)
            case Check():
                return _check(probe, store, progress)
    except EngineFault as error:
        status: Any = error.status if error.status in _STATUSES else "error"
        return Measurement(status=status, message=str(error), run_seconds=time.monotonic() - begun)
    except EngineMissing as error:
        return Measurement(status="unsupported", message=str(error))
    except ReferenceFailed as error:
        return Measurement(status="reference-failed", message=str(error))
    except (ModelProblem, InputProblem) as error:
        return Measurement(status="refused", message=str(error))
    except MemoryError as error:
        traceback.print_exc()
        return Measurement(
            status="out-of-memory", message=f"The machine has no memory left for this probe. {error}".strip()
        )
    except Exception as error:
        traceback.print_exc()
        return Measurement(status="error", message=_unexpected(error))


def forget() -> None:
    """Let go of everything that is kept warm."""
    measure.forget()
    captures.forget()


def _unexpected(error: Exception) -> str:
    text = " ".join(str(error).split())[:400]
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.strerror} ({error.filename})" if error.filename else error.strerror
        return f"The probe could not read or write a file: {text}."
    return f"The probe failed in a way that nobody foresaw: {type(error).__name__}: {text}; the log has the details."


def _import(probe: Import, store: Store) -> Measurement:
    imported = load.import_model(Path(probe.path), store)
    facts = {"model": imported.digest, "nodes": imported.nodes, "notes": list(imported.notes)}
    return Measurement(facts=facts, nodes=imported.nodes)


def _sanitize(probe: Sanitize, store: Store) -> Measurement:
    model = load.load(store, probe.model)
    made = sanitize.sanitize(model, store)
    before = len(model.index.nodes)
    facts = {"model": made.digest, "nodes_before": before, "nodes_after": made.nodes, "notes": list(made.notes)}
    return Measurement(facts=facts, nodes=made.nodes)


def _describe(probe: Describe, store: Store, progress: Say) -> Measurement:
    model = load.load(store, probe.model)
    index = model.index
    if probe.sample:
        index = captures.seen(store, model, probe.sample, probe.inputs, probe.reference, progress)
    return Measurement(artifacts={"index": store.put(msgspec.json.encode(index))}, nodes=len(index.nodes))


# -- the external checker


def _check(probe: Check, store: Store, progress: Say) -> Measurement:
    """Write the candidate, and what the command asks for beside it, into a fresh folder; run the command there."""
    progress("cutting")
    model = load.load(store, probe.model)
    store.root.joinpath("checks").mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="check-", dir=store.root / "checks"))
    try:
        words = _check_files(probe, model, store, folder)
        progress("checking")
        begun = time.monotonic()
        ran = command.run_check(probe.command, words, folder, probe.timeout)
        seconds = time.monotonic() - begun
        return _checked(probe, ran, store, folder, seconds, len(model.index.nodes))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _check_files(probe: Check, model: load.StoredModel, store: Store, folder: Path) -> dict[str, str]:
    raise NotImplementedError(cut, feeds_of, outputs_of, external, polygraphy, np, ALL, signal, backends)


def _checked(probe: Check, ran: Any, store: Store, folder: Path, seconds: float, nodes: int) -> Measurement:
    raise NotImplementedError
