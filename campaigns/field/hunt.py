"""A search for bugs of released engines: small graphs at random, and ONNX's own node tests, against
ONNX's evaluator.

    python campaigns/field/hunt.py graphs --engine onnxruntime --seconds 600 --seed 1 --out FOLDER
    [--site DIR]
    python campaigns/field/hunt.py nodes --engine openvino --out FOLDER

A graph has one to five nodes of odd shapes, often a pair that an optimizer joins. It is run with
the engine's optimizers on and, where it has such a switch, off. What differs from the evaluator, or
is refused by only one of the two, is made smaller as long as it goes on so, and written to
``FOLDER/<engine>.jsonl``: a line a kind, with its construction as the table of known bugs states
one. ``--site``: a folder with another release. What is found is a suspicion; campaigns/chain.md has what
became of some.
"""

import argparse
import collections
import functools
import importlib.util
import json
import multiprocessing
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import onnx
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

sys.path.insert(0, str(Path(__file__).parents[2]))
from campaigns.field.grow import FLOATS, grow
from narrowdown.engines.findings import Findings
from narrowdown.engines.graph.load import build_index
from narrowdown.engines.known.construct import construct, draw_feed
from narrowdown.engines.known.entry import Construction, MadeTensor
from narrowdown.engines.known.lookalike import list_lookalikes
from narrowdown.engines.known.table import recall

Array = np.ndarray[Any, Any]
BATCH = 20  # graphs of one child: one that dies takes these with it, and they are asked one by one
PATIENCE = 60.0  # seconds for a batch
# Relative to the largest value of an output; rounding of a few nodes stays a hundred times below.
TOLERANCES = {"float16": 3e-2, "float32": 1e-3, "float64": 1e-3}
NUDGE = 1e-5  # of the float inputs: an evaluator whose answer that moves is no judge


class Asked(NamedTuple):
    """A question to the engine: ``model`` serialized, and what the right answer is."""

    model: bytes
    feed: dict[str, Array]
    right: list[Array]


def ask_evaluator(made: Construction) -> Asked | None:
    """The question with its right answer; None where the evaluator is no judge: it refuses,
    rounding moves it, or something is no number, of which ONNX says little."""
    try:
        model = construct(made)
        judge = ReferenceEvaluator(model)
        feed = draw_feed(made, 1)
        right = judge.run(None, feed)
        if any(v.dtype.kind == "f" and not np.isfinite(v).all() for v in (*right, *feed.values())):
            return None
        nudged = {
            k: (v * (1 + NUDGE)).astype(v.dtype) if v.dtype.kind == "f" else v
            for k, v in feed.items()
        }
        if any(str(v.dtype) in FLOATS for v in feed.values()):
            steady = judge.run(None, nudged)
            if any(map(differ, right, steady)):
                return None
    except Exception:  # an evaluator may raise anything: then there is no judge
        return None
    return Asked(model.SerializeToString(), feed, right)


def differ(right: Array, given: Array) -> str:
    """How an answer differs; "" where it does not."""
    right, given = np.asarray(right), np.asarray(given)
    if right.shape != given.shape:
        return f"shape {list(given.shape)} for {list(right.shape)}"
    if right.dtype != given.dtype:
        return f"type {given.dtype} for {right.dtype}"
    if right.dtype.kind != "f":
        off = int((right != given).sum())
        return f"{off} of {right.size} values" if off else ""
    a, b = right.astype(np.float64), given.astype(np.float64)
    if (np.isfinite(a) != np.isfinite(b)).any() or (np.isnan(a) != np.isnan(b)).any():
        return "values that are no numbers"
    fine = np.isfinite(a)
    most = max(1.0, float(np.abs(a[fine]).max(initial=0.0)))
    off = float(np.abs(a[fine] - b[fine]).max(initial=0.0)) / most
    return f"by {100 * off:.3g} %" if off > TOLERANCES[str(right.dtype)] else ""


def run_onnxruntime(asked: Asked, optimized: bool) -> list[Array]:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    level = ort.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimized else level.ORT_DISABLE_ALL
    session = ort.InferenceSession(asked.model, options, providers=["CPUExecutionProvider"])
    given: list[Array] = session.run(None, asked.feed)
    return given


@functools.cache
def openvino_core() -> Any:
    """One for each child: it takes longer to make than a graph to run."""
    import openvino as ov

    return ov.Core()


def run_openvino(asked: Asked, optimized: bool) -> list[Array]:
    core = openvino_core()
    hints = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}
    model = core.compile_model(core.read_model(asked.model), "CPU", hints)
    answer = model(asked.feed)
    return [np.asarray(answer[i]) for i in range(len(asked.right))]


ENGINES: dict[str, tuple[Callable[[Asked, bool], list[Array]], tuple[bool, ...]]] = {
    "onnxruntime": (run_onnxruntime, (True, False)),
    "openvino": (run_openvino, (True,)),
}


def answer(engine: str, asked: Asked) -> tuple[str, ...]:
    """What the engine does, optimizers on and off: "right", "wrong ...", "refused ..."."""
    run, modes = ENGINES[engine]
    said = []
    for optimized in modes:
        try:
            given = run(asked, optimized)
        except Exception as error:  # whatever an engine says no with
            text = " ".join(str(error).split())
            said.append(f"{'unable' if 'NOT_IMPLEMENTED' in text else 'refused'} {text[-160:]}")
            continue
        how = [d for d in map(differ, asked.right, given) if d]
        said.append("wrong " + how[0] if how else "right")
    return tuple(said)


def ask_engine(engine: str, batch: Sequence[Asked]) -> list[tuple[str, ...]]:
    """Answers in order; "crash" or "hangs" where the process that was asked dies of it."""
    here, there = multiprocessing.get_context("fork").Pipe(duplex=False)

    def ask() -> None:
        for asked in batch:
            there.send(answer(engine, asked))

    child = multiprocessing.get_context("fork").Process(target=ask)
    child.start()
    there.close()
    answers: list[tuple[str, ...]] = []
    ended = "crash"
    try:
        while len(answers) < len(batch):
            if not here.poll(PATIENCE):
                ended = "hangs"
                break
            answers.append(here.recv())
    except EOFError:
        pass
    child.kill()
    child.join()
    here.close()
    if len(answers) < len(batch):
        answers.append((ended,) * len(ENGINES[engine][1]))
        answers += ask_engine(engine, batch[len(answers) :]) if len(answers) < len(batch) else []
    return answers


def kind_of(said: Sequence[str]) -> tuple[str, ...]:
    return tuple(s.split()[0] for s in said)


def is_suspect(said: Sequence[str]) -> bool:
    """Wrong, dead, or refused with optimizers alone. What is refused without them, too, is not
    implemented, as a rule."""
    kinds = kind_of(said)
    return any(k in ("wrong", "crash", "hangs") for k in kinds) or (
        kinds[0] == "refused" and "right" in kinds
    )


def is_denied(engine: str, made: Construction, said: Sequence[str]) -> bool:
    """Whether no other engine, as plain as it can be had, gives the evaluator's answer: then it may
    be the evaluator that is wrong. Where optimizers alone make the difference, nobody else need be
    asked."""
    if "right" in said:
        return False
    asked = ask_evaluator(made)
    others = [name for name in ENGINES if name != engine and importlib.util.find_spec(name)]
    return asked is None or all(ask_engine(other, [asked])[0][-1] != "right" for other in others)


def shrink(engine: str, made: Construction, kinds: tuple[str, ...]) -> Construction:
    """As few nodes and as little stated as go on being answered so."""
    changed = True
    while changed:
        changed = False
        for smaller in list_smaller(made):
            asked = ask_evaluator(smaller)
            if asked is not None and kind_of(ask_engine(engine, [asked])[0]) == kinds:
                made, changed = smaller, True
                break
    return made


def list_smaller(made: Construction) -> Iterator[Construction]:
    """The construction without an output, without a node whose values are fed in its place, with
    values drawn."""
    replace = msgspec.structs.replace
    for name in made.outputs:
        if len(made.outputs) > 1:
            yield pruned(
                replace(made, outputs={k: v for k, v in made.outputs.items() if k != name})
            )
    asked = ask_evaluator(made)
    if asked is None:
        return
    values = evaluate_all(made, asked.feed)
    for node in made.nodes:
        for name in node.outputs:  # what lies before it alone
            if name and name in values and name not in made.outputs:
                yield pruned(replace(made, outputs={name: str(values[name].dtype)}))
    for at, node in enumerate(made.nodes):
        if len(made.nodes) > 1 and not set(node.outputs) & set(made.outputs):
            fed = {
                n: MadeTensor(
                    dtype=str(values[n].dtype),
                    shape=values[n].shape,
                    values=values[n].ravel().tolist(),
                )
                for n in node.outputs
                if n in values
            }
            left = tuple(other for place, other in enumerate(made.nodes) if place != at)
            yield pruned(replace(made, nodes=left, inputs={**made.inputs, **fed}))
    for name, tensor in made.inputs.items():
        if tensor.values is not None:
            for span in (
                ((-2.0, 2.0), (0.5, 2.0)) if tensor.dtype in FLOATS else ((-9.0, 9.0), (1.0, 9.0))
            ):
                drawn = replace(tensor, values=None, range=span)
                yield replace(made, inputs={**made.inputs, name: drawn})
    for at, node in enumerate(made.nodes):
        for key in node.attributes:
            plain = replace(node, attributes={k: v for k, v in node.attributes.items() if k != key})
            yield replace(made, nodes=(*made.nodes[:at], plain, *made.nodes[at + 1 :]))


def pruned(made: Construction) -> Construction:
    """Without what no output needs."""
    needed, kept = set(made.outputs), []
    for node in reversed(made.nodes):
        if needed.intersection(node.outputs):
            kept.append(node)
            needed.update(node.inputs)
    inputs = {n: t for n, t in made.inputs.items() if n in needed}
    weights = {n: t for n, t in made.weights.items() if n in needed}
    return msgspec.structs.replace(
        made, nodes=tuple(reversed(kept)), inputs=inputs, weights=weights
    )


def evaluate_all(made: Construction, feed: Mapping[str, Array]) -> dict[str, Array]:
    """Every tensor that a node makes."""
    model = construct(made)
    names = [n for node in made.nodes for n in node.outputs if n]
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=n) for n in names)
    given = ReferenceEvaluator(model).run(None, dict(feed))
    return {n: v for n, v in zip(names, given, strict=True) if isinstance(v, np.ndarray)}


def name_kind(engine: str, made: Construction, said: Sequence[str]) -> str:
    """What two finds have in common that are counted as one."""
    types = {t.dtype for t in made.inputs.values()}
    return " ".join([engine, *kind_of(said), *(n.op for n in made.nodes), *sorted(types)])


def hunt_graphs(engine: str, seconds: float, seed: int, out: Path) -> collections.Counter[str]:
    """Graphs at random until time is over; each new kind is written. How often each kind was
    met."""
    met: collections.Counter[str] = collections.Counter()
    number, end, asked_n = seed * 10_000_000, time.monotonic() + seconds, 0
    while time.monotonic() < end:
        batch: list[tuple[int, Construction, Asked]] = []
        while len(batch) < BATCH:
            number += 1
            made = grow(np.random.default_rng(number))
            asked = ask_evaluator(made) if made is not None else None
            if made is not None and asked is not None:
                batch.append((number, made, asked))
        asked_n += len(batch)
        for (drawn, made, _), said in zip(
            batch, ask_engine(engine, [b[2] for b in batch]), strict=True
        ):
            if not is_suspect(said):
                continue
            rough = "rough " + name_kind(engine, made, said)
            met[rough] += 1
            if met[rough] > 1 or is_denied(engine, made, said):
                continue
            small = shrink(engine, made, kind_of(said))
            keep(engine, small, drawn, met, out)
    print(f"{asked_n} graphs, {sum(not k.startswith('rough') for k in met)} kinds", flush=True)
    return met


def keep(
    engine: str, small: Construction, drawn: int | str, met: collections.Counter[str], out: Path
) -> None:
    asked = ask_evaluator(small)
    if asked is None:
        return
    said = ask_engine(engine, [asked])[0]
    if is_denied(engine, small, said):
        return
    kind = name_kind(engine, small, said)
    met[kind] += 1
    if met[kind] > 1:
        return
    index = build_index(construct(small), "m")
    bugs = recall(engine, {n.op for n in small.nodes})
    like = [b.id for b, _ in list_lookalikes(Findings(), index, bugs, version="", precision="fp32")]
    row = {
        "kind": kind,
        "seed": drawn,
        "said": said,
        "like": like,
        "make": msgspec.to_builtins(small),
    }
    with (out / f"{engine}.jsonl").open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(row) + "\n")
    print(kind, said, like, flush=True)


def hunt_nodes(engine: str, out: Path) -> None:
    """ONNX's own node tests, each with the answer that stands in it."""
    from onnx.backend.test.case.node import collect_testcases

    cases = []
    for case in collect_testcases(None):
        for fed, right in (case.data_sets or [])[:1]:
            names = [i.name for i in case.model.graph.input]
            arrays = [
                numpy_helper.to_array(v) if isinstance(v, onnx.TensorProto) else v
                for v in (*fed, *right)
            ]
            if all(isinstance(v, np.ndarray) for v in arrays) and len(names) == len(fed):
                feed = dict(zip(names, arrays, strict=False))
                cases.append(
                    (case.name, Asked(case.model.SerializeToString(), feed, arrays[len(fed) :]))
                )
    for (name, _), said in zip(cases, ask_engine(engine, [c[1] for c in cases]), strict=True):
        if is_suspect(said):
            with (out / f"{engine}-nodes.jsonl").open("a", encoding="utf-8") as lines:
                lines.write(json.dumps({"case": name, "said": said}) + "\n")
            print(name, said, flush=True)
    print(f"{len(cases)} node tests", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["graphs", "nodes"])
    parser.add_argument("--engine", choices=sorted(ENGINES), required=True)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--site", type=Path, help="a folder with another release of the engine")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    if arguments.site:
        sys.path.insert(0, str(arguments.site.absolute()))
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    engine = __import__(arguments.engine)
    print(arguments.engine, engine.__version__, flush=True)
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.what == "nodes":
        hunt_nodes(arguments.engine, arguments.out)
    else:
        hunt_graphs(arguments.engine, arguments.seconds, arguments.seed, arguments.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
