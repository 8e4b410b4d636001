"""What a worker does with each kind of probe. Every failure becomes a measurement that says, in one
sentence, what happened."""

import contextlib
import os
import shutil
import signal
import tempfile
import time
import traceback
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any, get_args

import msgspec

from narrowdown.engines import faults, installed, options
from narrowdown.engines.array import Array
from narrowdown.engines.backends.base import EngineFault, EngineMissing
from narrowdown.engines.backends.command.engine import Program, refuse
from narrowdown.engines.backends.onnxruntime.quantizer import quantize
from narrowdown.engines.checker import command, environment
from narrowdown.engines.checker.private_copies import run_agreed
from narrowdown.engines.consent import CHECK
from narrowdown.engines.data import (
    InputProblem,
    generation,
    held,
    originals,
    polygraphy,
    samples,
)
from narrowdown.engines.data.arrays import widen_for_file
from narrowdown.engines.data.samples import load_feed
from narrowdown.engines.data.scripting import ScriptProblem
from narrowdown.engines.graph import ModelProblem, control_models, filekind, load, sanitize
from narrowdown.engines.graph.cut import Cut
from narrowdown.engines.graph.quantized import PER_CHANNEL, TRIALS, find_settings, list_left_out
from narrowdown.engines.graph.ranges import ALL
from narrowdown.engines.graph.standing_alone import standing_alone
from narrowdown.engines.known import construct
from narrowdown.engines.known.entry import Construction
from narrowdown.engines.known.table import TableProblem, recall
from narrowdown.engines.probe import (
    AnyProbe,
    Check,
    Construct,
    Describe,
    Import,
    Inspect,
    LoadInputs,
    Measure,
    Measurement,
    Recall,
    Requantize,
    Sanitize,
    State,
    Status,
    Unroll,
)
from narrowdown.engines.spec import parse
from narrowdown.engines.store import Damaged, Store, decoding, is_digest, memory, sound
from narrowdown.engines.workers import (
    artifact_files,
    captures,
    measure,
    part,
    stating,
    unrolling,
)
from narrowdown.engines.workers.captures import ReferenceFailed
from narrowdown.engines.workers.part import Feed, Part, Say, feeds_by_name

_LONGEST_WORD = 200  # characters of one word of a message
_LONGEST = 2000  # and of all of it
_STATUSES = frozenset(get_args(Status))


def execute_probe(probe: AnyProbe, store: Store, progress: Say) -> Measurement:
    """Answer the probe.

    Raises no ``Exception``: what it does not expect is status ``error``, with a traceback in the
    log. What the machine refused is no answer: status ``fault``, as what fails once our own files
    have changed; nor is a file of the session that is gone or damaged: ``facts["damaged"]`` is its
    path; nor one of the user's that is no longer what was agreed to: ``facts["changed"]``.
    """
    answer = _excuse_candidate(_answer_probe(probe, store, progress), probe, store)
    return msgspec.structs.replace(answer, message=_shorten_words(answer.message))


def _shorten_words(message: str) -> str:
    """The message with the middle of each giant word left out: a name in a model may be megabytes
    long."""
    if len(message) <= _LONGEST_WORD:
        return message
    head, tail = _LONGEST_WORD // 2, _LONGEST_WORD // 4
    words = (
        w if len(w) <= _LONGEST_WORD else f"{w[:head]}...{w[-tail:]}" for w in message.split(" ")
    )
    return " ".join(words)[:_LONGEST]


def _excuse_candidate(answer: Measurement, probe: AnyProbe, store: Store) -> Measurement:
    """The answer; where it failed for what is not the candidate's doing, none.

    An engine reads weights by itself, and says of a file that is gone that the model cannot be
    built. A disk may be full, or an engine say that something of the kind was refused to it. Our
    own files may have changed: what failed may be a module of ours that is gone, or does not fit
    the others, and the journal would say that an engine is not there.
    """
    if answer.status in ("ok", "fault", "cancelled") or "damaged" in answer.facts:
        return answer
    model = str(getattr(probe, "model", ""))
    if is_digest(model) and (lost := sound.find_lost_weights(store, store.model_path(model))):
        return _measure_failure(lost, answer.run_seconds)
    if fault := faults.find_fault_in_text(answer.message) or faults.find_full_disk(
        faults.list_written_places(store.root)
    ):
        return faults.make_unanswered(fault, store.root)
    if changed := installed.say_change(installed.OF_WORKERS):
        return Measurement(status="fault", message=changed)
    return answer


def _answer_probe(probe: AnyProbe, store: Store, progress: Say) -> Measurement:
    begun = time.monotonic()
    if strange := held.consent().strange(probe):
        return Measurement(status="refused", message=strange)
    try:
        return _dispatch_probe(probe, store, progress)
    except Exception as error:
        if (fault := faults.find_fault(error)) is not None:
            _log_traceback()
            return faults.make_unanswered(fault, store.root)
        if isinstance(error, MemoryError) and memory.starved(memory.own() + memory.room()):
            _log_traceback()
            return faults.make_unanswered(faults.no_memory(), store.root)
        return _measure_failure(error, time.monotonic() - begun)


def _dispatch_probe(probe: AnyProbe, store: Store, progress: Say) -> Measurement:
    match probe:
        case Inspect():
            return Measurement(facts=msgspec.to_builtins(captures.make_engine(probe.engine).info))
        case Import():
            return _import_model(probe, store)
        case Describe():
            return _describe_model(probe, store, progress)
        case Sanitize():
            return _sanitize_model(probe, store)
        case Unroll():
            return unrolling.unroll_model(probe, store, progress)
        case Requantize():
            return _requantize(probe, store)
        case LoadInputs():
            model = load.load(store, probe.model)
            run = (
                part.run_reference(store, model, probe.reference, progress)
                if probe.reference
                else None
            )
            return Measurement(facts=samples.load_inputs(probe, model, store, run))
        case Recall():
            return Measurement(facts={"bugs": msgspec.to_builtins(recall(probe.family, probe.ops))})
        case Construct():
            return _construct_model(probe, store)
        case State():
            return stating.state_part(probe, store, progress)
        case Measure():
            return measure.measure(probe, store, progress)
        case Check():
            return _run_check(probe, store, progress)


def _measure_failure(error: Exception, seconds: float) -> Measurement:
    """What the exception says of the candidate."""
    match error:
        case EngineFault():
            status: Any = error.status if error.status in _STATUSES else "error"
            facts = {"refusal": list(error.words)} if error.words else {}
            return Measurement(
                status=status,
                message=str(error),
                facts=facts,
                run_seconds=seconds,
                signal=error.signal,
            )
        case EngineMissing():
            return Measurement(status="unsupported", message=str(error))
        case ReferenceFailed():
            return Measurement(status="reference-failed", message=str(error))
        case held.NotAgreed():
            return Measurement(status="refused", message=str(error), facts={"changed": error.path})
        case ScriptProblem():
            return Measurement(status="refused", message=str(error), facts={"script": True})
        case ModelProblem() | InputProblem() | TableProblem():
            return Measurement(status="refused", message=str(error))
        case Damaged():
            return Measurement(status="error", message=str(error), facts={"damaged": error.path})
        case MemoryError():
            _log_traceback()
            said = f"The machine has no memory left for this probe. {error}".strip()
            return Measurement(status="out-of-memory", message=said)
    _log_traceback()
    return Measurement(status="error", message=_say_unexpected(error))


def _log_traceback() -> None:
    """The exception at hand, into the probe's log; a log that cannot be written must not become the
    answer."""
    with contextlib.suppress(OSError):
        traceback.print_exc()


def _say_unexpected(error: Exception) -> str:
    text = " ".join(str(error).split())[:400]
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.strerror} ({error.filename})" if error.filename else error.strerror
        return f"The probe could not read or write a file: {text}."
    return f"The probe failed in a way that nobody foresaw: {type(error).__name__}: {text}; the log has the details."


def _import_model(probe: Import, store: Store) -> Measurement:
    if probe.text:
        program = Program({"io": "npz", **options.values(parse(probe.program))})
        with program.started("program", lambda own: {"dir": own}, (probe.text,)) as (folder, ran):
            refuse(ran, "export", building=True)
            made = load.import_model(folder / probe.path, store, _runtime_ceiling)
        return Measurement(facts={"model": made.digest})
    if filekind.is_ir(probe.path):
        imported = _import_ir(Path(probe.path), store)
    else:
        imported = load.import_model(Path(probe.path), store, _runtime_ceiling)
    beside = generation.read_beside(Path(probe.path), lambda: load.load(store, imported.digest))
    facts = {
        "model": imported.digest,
        "nodes": imported.nodes,
        "notes": list(imported.notes),
        "outputs": list(imported.outputs),
        "bodies": imported.bodies,
        **beside,
        "warnings": [*imported.warnings, *beside.get("warnings", ())],
        **({"random": list(imported.random)} if imported.random else {}),
    }
    return Measurement(facts=facts, nodes=imported.nodes)


def _import_ir(path: Path, store: Store) -> load.Imported:
    """A model of one node in its place, which OpenVINO alone can run."""
    from narrowdown.engines.backends.openvino import ir  # which is not there for everybody

    if complaint := filekind.explain_no_model(path):
        raise ModelProblem(complaint)
    model = ir.stand_in(path)
    outputs = tuple(o.name for o in model.graph.output)
    return load.Imported(load.save(store, model, str(path.parent)), 1, outputs=outputs)


def _construct_model(probe: Construct, store: Store) -> Measurement:
    declared = decoding.decode(probe.declared.encode(), Construction)
    facts: dict[str, Any] = {"model": load.save(store, construct.construct(declared))}
    if probe.feed:
        feeds = construct.draw_feeds(declared, probe.seed)
        facts["inputs"], facts["samples"] = samples.keep_feeds(store, feeds, "drawn as declared")
    return Measurement(facts=facts)


def _runtime_ceiling(ir: int, opset: int) -> tuple[int, int]:
    """What the installed ONNX Runtime takes; as it is where there is none."""
    from narrowdown.engines.backends import ceiling

    try:
        return ceiling.onnxruntime(ir, opset)
    except ImportError:
        return ir, opset


def _sanitize_model(probe: Sanitize, store: Store) -> Measurement:
    model = load.load(store, probe.model)
    made = sanitize.sanitize(model, store)
    before = len(model.index.nodes)
    facts = {
        "model": made.digest,
        "nodes_before": before,
        "nodes_after": made.nodes,
        "notes": list(made.notes),
    }
    return Measurement(facts=facts, nodes=made.nodes)


def _describe_model(probe: Describe, store: Store, progress: Say) -> Measurement:
    model = load.load(store, probe.model)
    index = model.index
    if probe.sample:
        index = captures.capture_index(
            store, model, captures.Run(probe.reference, probe.inputs, probe.sample), progress
        )
    return Measurement(
        artifacts={"index": store.put(msgspec.json.encode(index))}, nodes=len(index.nodes)
    )


# -- the external checker


def _run_check(probe: Check, store: Store, progress: Say) -> Measurement:
    """Write the candidate, and what the command asks for beside it, into a fresh folder; run the
    command there."""
    progress("cutting")
    store.root.joinpath("checks").mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="check-", dir=store.root / "checks"))
    path: Path | None = None
    try:
        model = load.load(store, probe.model)
        part = Part(store, model, probe.candidate, probe.inputs, probe.reference, progress)
        asked = command.needs(probe.command)
        feed = _feed_for_check(part, probe.sample, asked)
        piece, right = _make_piece(probe, part, feed, asked)
        user = Path(probe.folder) if probe.folder else folder
        # Large weights are copied only for those who look for the model by its name in the folder.
        said = command.sources(probe.command, user)
        by_name = "model.onnx" in probe.artifacts or any(command.DEBUG_MODEL in t for t in said)
        path = artifact_files.write_model(
            store, folder, piece.model, model.weights_dir, command.DEBUG_MODEL, here=by_name
        )
        inputs = expected = None
        if "inputs" in asked:
            inputs = folder / "inputs.json"
            polygraphy.write_inputs(
                inputs,
                [{n: widen_for_file(a) for n, a in feeds_by_name(piece, feed.arrays).items()}],
            )
        if "expected" in asked:
            expected = folder / "expected.json"
            polygraphy.write_outputs(
                expected, [{n: widen_for_file(right[t]) for n, t in piece.outputs.items()}]
            )
        # The session's own folder is not shown: a checker that is killed would leave a link to it
        # inside of itself.
        own = [store.root.name] if store.root.resolve().parent == user.resolve() else []
        made = (name.partition("/")[0] for name in probe.artifacts)
        hidden = [*own, *made, command.DEBUG_MODEL, "inputs.json", "expected.json"]
        permit = held.permit(CHECK, probe.command, probe.folder)
        fill = partial(
            command.words,
            model_path=path,
            inputs_path=inputs,
            expected_path=expected,
            folder=folder,
        )
        progress("checking")
        kills = memory.kernel_kills()
        ran, whole = run_agreed(permit, folder, hidden, fill, probe.timeout, "checker")
        if ran.status == "lost":
            return Measurement(status="crash", message=ran.message, signal=signal.SIGKILL)
        if (no_verdict := _no_verdict(ran, store, folder, kills)) is not None:
            return no_verdict
        measurement = _measure_check(
            probe, ran, store, folder, nodes=sum(n >= 0 for n in piece.node_ids)
        )
        missing = (
            () if whole else (f"'{user}' holds too many files for the checker to see them all.",)
        )
        return msgspec.structs.replace(measurement, notes=missing)
    except ValueError as error:
        return Measurement(status="refused", message=str(error))
    finally:
        if path is not None and path.parent != folder:
            path.unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)


def _make_piece(
    probe: Check, part: Part, feed: Feed, asked: Collection[str]
) -> tuple[Cut, Mapping[int, Array]]:
    """The model to be checked, and what its outputs should be where the command asks for that, by
    tensor id."""
    if probe.control == "identity":
        return control_models.identity_model(part.model), feed.arrays
    known = (
        part.expected(probe.sample, feed, part.judged)
        if probe.control or "expected" in asked
        else {}
    )
    if probe.control == "answers":
        return control_models.constant_model(part.model, {t: known[t] for t in part.judged}), known
    return part.cut(feed.arrays, feed.constants), known


def _feed_for_check(part: Part, sample: str, asked: frozenset[str]) -> Feed:
    """What the candidate is fed. Where the command asks for no values, a reference that cannot give
    them is no obstacle: the cut tensors are then typed as the model declares them."""
    must = bool(asked & {"inputs", "expected"})
    if not must and (part.candidate.nodes == ALL or not part.reference or not part.inputs):
        return Feed()
    try:
        return part.feed(sample)
    except (ReferenceFailed, EngineFault, EngineMissing, InputProblem):
        if must:
            raise
        return Feed()


def _no_verdict(
    ran: command.CheckResult, store: Store, folder: Path, kills: int
) -> Measurement | None:
    """What a checker's end says of the machine rather than of the candidate; None where it is the
    candidate's. A checker that failed is asked for what it says, and for room to write down once
    more what it was given. ``kills``: how many processes the system had killed for want of memory
    before it ran."""
    held = memory.kernel_kills() > kills
    # A shell around it hands the kill of what it ran on as this exit code.
    if ran.signal == signal.SIGKILL or (held and ran.returncode == 128 + signal.SIGKILL):
        if held and memory.starved(memory.room()):
            return faults.make_unanswered(faults.no_memory(), store.root)
        said = (
            "The system killed the checker for want of memory."
            if held
            else "The checker was killed (SIGKILL)."
        )
        status: Status = "out-of-memory" if held else "crash"
        return Measurement(status=status, message=said, signal=signal.SIGKILL)
    fault, room = None, faults.FULL
    if ran.returncode or ran.signal:
        fault = faults.find_fault_in_text(f"{ran.stdout}\n{ran.stderr}")
        room += sum(
            path.stat().st_size
            for path in folder.iterdir()
            if path.is_file() and not path.is_symlink()
        )
    fault = fault or faults.find_full_disk(faults.list_written_places(store.root), room)
    return None if fault is None else faults.make_unanswered(fault, store.root)


def _measure_check(
    probe: Check,
    ran: command.CheckResult,
    store: Store,
    folder: Path,
    nodes: int,
) -> Measurement:
    """How the checker ended. Not started: it is no answer; out of time: ``timeout``; all else is
    the judge's to read. ``facts["missed"]``: variables that it was not given and asks for, or
    speaks of where it did not pass."""
    facts = {
        "started": ran.status != "not-started",
        "timed_out": ran.status == "timeout",
        "returncode": ran.returncode,
        "signal": ran.signal,
        "stdout": ran.stdout,
        "stderr": ran.stderr,
        "left_out": ran.left_out,
        "command": list(ran.words),
    }
    said = (ran.stdout, ran.stderr) if ran.status != "exited" or ran.returncode else ()
    asked = command.sources(probe.command, Path(probe.folder) if probe.folder else folder)
    if missed := environment.list_missed(said, asked, os.environ, held.consent().variables):
        facts["missed"] = missed
    status: Status = (
        "unsupported"
        if ran.status == "not-started"
        else "timeout"
        if ran.status == "timeout"
        else "ok"
    )
    artifacts = (
        {"output": store.put(f"{ran.stdout}\n{ran.stderr}".encode())}
        if ran.stdout or ran.stderr
        else {}
    )
    for name in probe.artifacts:
        made = folder / name
        if made.resolve().is_relative_to(folder.resolve()) and made.is_file():
            artifacts[name] = artifact_files.put_file(store, made)
    return Measurement(
        status=status,
        message=ran.message,
        facts=facts,
        artifacts=artifacts,
        run_seconds=ran.seconds,
        nodes=nodes,
    )


def _requantize(probe: Requantize, store: Store) -> Measurement:
    """Answer the probe. Raises ``ModelProblem``, ``InputProblem``, ``Damaged``."""
    model = load.load(store, probe.model)
    original = originals.load_original(store, model, probe.reference)
    settings = find_settings(model.index)
    if original is None or not settings:
        raise ModelProblem(
            "it takes the float original, and a model with weights and activations as codes."
        )
    chosen = {**settings, **TRIALS[probe.trial]}
    if chosen["per_channel"] and model.index.opset < PER_CHANNEL:
        raise ModelProblem(
            f"Not tried: it takes opset {PER_CHANNEL}, and the model has {model.index.opset} (onnx.version_converter)."
        )
    left = [*list_left_out(model.index), *probe.left_out]
    feeds = [load_feed(store, probe.inputs, sample) for sample in probe.samples]
    whole = standing_alone(original.proto, original.weights_dir)
    try:
        made = quantize(whole, feeds, nodes_to_exclude=left, **chosen)
    except (ValueError, RuntimeError, KeyError, TypeError, IndexError) as error:
        raise ModelProblem(f"onnxruntime.quantization did not do it: {error}") from error
    return Measurement(facts={"model": load.save(store, made)})
