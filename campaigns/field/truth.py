"""What is true of a case, apart from the product: does it fail, are the named nodes culprits, does
the workaround hold.

A case *fails* where the engine, driven by its own API or rounded by the interpreter, is off by
clearly more than the tolerance on a given sample; *passes* where it stays clearly below it on all;
near it, either is right. Where a nudge of the inputs by one unit in the last place moves the
reference's outputs as much, the outputs are *undetermined*; of a model that reads codes of words
alone, a nudge of its weights. A node is a culprit where keeping it alone exact cures or halves the
error, or where it alone, on the reference's values, makes the model's outputs fail.
"""

import contextlib
import tempfile
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from campaigns.field.interpret import (
    Array,
    Changes,
    Interpreter,
    NotInterpreted,
    Where,
    evaluator,
    named,
    reads_of,
)
from campaigns.field.voices import (
    TOLERANCE,
    Died,
    OnnxRuntime,
    OpenVino,
    Refused,
    Rounded,
    Voice,
    distance,
    nudged,
)

CLEAR = 1.15  # times the tolerance, over or under which a case is clearly on one side
Feeds = Mapping[str, Array]


class Case:
    """A model, an engine and samples, with every answer that the score asks of them."""

    def __init__(self, path: Path, engine: str, float_model: Path | None = None) -> None:
        self.path, self.engine, self.float_model = path, engine, float_model
        self.results: Mapping[
            str, str
        ] = {}  # what nodes of the session's own models make, by name: see ``interpret.results``
        self.reference: Voice = OnnxRuntime(str(float_model or path))
        self.rounding = _precision(
            engine
        )  # what results are rounded to, where the engine is a rounding
        self.precision = self.rounding  # what the tolerance follows from
        self.refused, self.closed = "", "refused"
        self.voice: Voice | None = None
        try:
            self.voice = self._open()
        except Refused as error:
            self.refused, self.closed = str(error), "dies" if isinstance(error, Died) else "refused"
        if isinstance(self.voice, OpenVino):
            self.precision = self.voice.computes
        quantized = {
            "DequantizeLinear",
            "QLinearConv",
            "QLinearMatMul",
            "ConvInteger",
            "MatMulInteger",
            "DynamicQuantizeLinear",
        }
        if any(n.op_type in quantized for n in onnx.load(path).graph.node):
            self.precision = "int8"
        self.tolerance = TOLERANCE[self.precision]

    def _open(self) -> Voice:
        if self.engine.startswith("emulate"):
            opset = next(
                o.version for o in onnx.load(self.path).opset_import if o.domain in ("", "ai.onnx")
            )
            if self.rounding == "bf16" and opset < 13:
                raise Refused("the emulation of BF16 is documented for opset 13 and newer")
            return Rounded(self.path, self.rounding)
        if self.engine.startswith("reference"):
            return Rounded(self.path, self.rounding, typed=True)
        if self.engine.startswith("openvino"):
            return OpenVino(str(self.path), "f32" if "f32" in self.engine else "")
        return OnnxRuntime(str(self.path), optimize="optimization=all" in self.engine)

    def whole(self, samples: Sequence[Feeds]) -> dict[str, Any]:
        """state, errors of each sample, noise of each (how far a nudge moves the reference), and
        other voices' distance."""
        if self.voice is None:
            return {"state": self.closed, "why": self.refused, "tolerance": self.tolerance}
        if not samples:
            return {"state": "unknown", "why": "no samples", "tolerance": self.tolerance}
        errors, rows, noise, others = [], [], [], []
        try:
            for feeds in samples:
                right = self.reference.run(feeds)
                made = self.voice.run(feeds)
                errors.append(distance(made, right))
                rows.append(worst_row(feeds, made, right))
        except Refused as error:
            self.voice = None
            return {
                "state": "dies" if isinstance(error, Died) else "refused",
                "why": str(error),
                "tolerance": self.tolerance,
            }
        except NotInterpreted as error:
            return {"state": "unknown", "why": str(error), "tolerance": self.tolerance}
        worst = sorted(range(len(errors)), key=lambda i: -errors[i])[:3]
        for i in worst:
            right = self.reference.run(samples[i])
            moved = [
                distance(self.reference.run(nudged(samples[i], seed)), right) for seed in range(6)
            ]
            if not any(value.dtype.kind == "f" for value in samples[i].values()):
                moved += [
                    distance(OnnxRuntime(model).run(samples[i]), right) for model in self._moved
                ]
            noise.append(max(moved))
            others.append(self._others(samples[i], right))
        state = state_of([errors[i] for i in worst], noise, self.tolerance)
        if state == "passes" and max(rows) > self.tolerance:
            state = (
                "borderline"  # whether a row of a batch is a sample of its own is for whoever asks
            )
        return {
            "state": state,
            "rows": max(rows),
            "tolerance": self.tolerance,
            "precision": self.precision,
            "errors": errors,
            "noise": noise,
            "others": others,
            "failing": sum(e > self.tolerance for e in errors),
        }

    @cached_property
    def _moved(self) -> tuple[bytes, ...]:
        """The model with its weights moved by one unit in the last place: where it reads codes of
        words, nothing else can be. A single number stays: a power moved off 2 makes NaN of what is
        negative."""
        model = onnx.load(self.float_model or self.path)
        weights = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
        made = []
        for seed in range(2):
            many = {name: value for name, value in weights.items() if value.size > 1}
            moved = {**weights, **nudged(many, seed)}
            del model.graph.initializer[:]
            model.graph.initializer.extend(
                numpy_helper.from_array(value, name) for name, value in moved.items()
            )
            made.append(model.SerializeToString())
        return tuple(made)

    def _others(self, feeds: Feeds, right: Mapping[str, Array]) -> dict[str, float]:
        """How far voices of another make, in FP32, are from the reference."""
        found = {}
        if self.float_model is None and not self.engine.startswith("openvino"):
            with contextlib.suppress(Refused):
                found["openvino"] = distance(OpenVino(str(self.path), "f32").run(feeds), right)
        if not self.engine.startswith("onnxruntime"):
            found["onnxruntime, optimized"] = distance(
                OnnxRuntime(str(self.float_model or self.path), True).run(feeds), right
            )
        return found

    def culprits(self, nodes: Sequence[str], feeds: Feeds) -> dict[str, Any]:
        """Whether these nodes, together, are culprits on this sample."""
        try:
            interpreter = Interpreter(
                self.path, evaluator(self.rounding) if self.engine.startswith("reference") else None
            )
            places = named(interpreter, nodes, self.results)
            missing = [n for n in nodes if n not in places]
            if not places:
                return {
                    "true": None,
                    "why": "no node of the user's model has these names",
                    "missing": missing,
                }
            expected = interpreter.run(feeds)
            if self.engine.startswith(("emulate", "reference")):
                found = _rounded_culprits(
                    interpreter,
                    frozenset(places.values()),
                    feeds,
                    expected,
                    self.rounding,
                    self.tolerance,
                )
            else:
                found = self._part(interpreter, sorted(places.values()), feeds, expected)
        except (NotInterpreted, Refused) as error:
            return {"true": None, "why": str(error)}
        computing = sum(
            p.node.op_type != "Constant" for p in interpreter.places if len(p.where) == 1
        )
        return {**found, "missing": missing, "share": len(places) / max(1, computing)}

    def _part(
        self,
        interpreter: Interpreter,
        places: Sequence[Where],
        feeds: Feeds,
        expected: Mapping[str, Array],
    ) -> dict[str, Any]:
        if any(len(place) > 1 for place in places):
            return {"true": None, "why": "within a body"}
        values = interpreter.run(feeds, all_values=True)
        model, inputs = part(interpreter, [place[0] for place in places], values)
        data = model.SerializeToString()
        if self.engine.startswith("openvino"):
            voice: Voice = OpenVino(data, "f32" if "f32" in self.engine else "")
        else:
            voice = OnnxRuntime(data, optimize="optimization=all" in self.engine)
        made = voice.run(inputs)
        own = distance(made, {name: values[name] for name in made})
        effect = worst_row(feeds, interpreter.run(feeds, Changes(replaced=made)), expected)
        assert self.voice is not None
        whole = worst_row(feeds, self.voice.run(feeds), expected)
        if (
            effect > self.tolerance
        ):  # a row of a batch that fails as a whole may be what was asked about
            own = max(own, worst_row(inputs, made, {name: values[name] for name in made}))
        true = own > self.tolerance and effect >= min(self.tolerance, whole / 10)
        return {"true": bool(true), "own": own, "effect": effect, "whole": whole}

    def spread(self, feeds: Feeds, most: int = 40) -> dict[str, Any]:
        """Whether no node by itself makes the model fail, of at most so many that are tried; for a
        rounding only. Of a batch the worst row."""
        if not self.engine.startswith("emulate"):
            return {"true": None, "why": "not a rounding"}
        try:
            interpreter = Interpreter(self.path)
            right = interpreter.run(feeds)
            places = [
                p.where
                for p in interpreter.places
                if p.node.op_type != "Constant" and len(p.where) == 1
            ]
            tried = places[:: max(1, len(places) // most)]
            alone = [
                worst_row(
                    feeds,
                    interpreter.run(feeds, Changes(self.rounding, only=frozenset({p}))),
                    right,
                )
                for p in tried
            ]
            whole = worst_row(feeds, interpreter.run(feeds, Changes(self.rounding)), right)
        except NotInterpreted as error:
            return {"true": None, "why": str(error)}
        return {
            "true": max(alone) <= self.tolerance,
            "tried": len(tried),
            "worst": max(alone),
            "whole": whole,
        }

    def refusals(self, nodes: Sequence[str], feeds: Feeds) -> dict[str, Any]:
        """Whether the engine refuses these nodes by themselves, and how many of at most ten others
        it refuses. With the shapes that they have in a run, or with open ones: an engine may refuse
        just what it cannot know before."""
        try:
            interpreter = Interpreter(self.path)
            places = named(interpreter, nodes, self.results)
            if (nodes and not places) or any(len(place) > 1 for place in places.values()):
                return {"true": None, "why": "not found, or within a body"}
            values = interpreter.run(feeds, all_values=True)
        except NotInterpreted as error:
            return {"true": None, "why": str(error)}
        chosen = [place[0] for place in places.values()]
        others = [
            i
            for i, node in enumerate(interpreter.model.graph.node)
            if i not in chosen and node.op_type != "Constant"
        ]
        try:
            refused = [
                self._refuses(interpreter, [i], values)
                for i in others[:: max(1, len(others) // 10)][:10]
            ]
            true = bool(chosen) and self._refuses(interpreter, chosen, values)
        except Refused as error:
            return {"true": None, "why": f"a part cannot be built: {error}"}
        computing = sum(node.op_type != "Constant" for node in interpreter.model.graph.node)
        share = len(chosen) / max(1, computing)
        return {
            "true": true,
            "share": share,
            "others_refused": sum(refused),
            "others": len(refused),
        }

    def _refuses(
        self, interpreter: Interpreter, nodes: Sequence[int], values: Mapping[str, Array]
    ) -> bool:
        return any(
            self._takes_not(*part(interpreter, sorted(nodes), values, opened=opened))
            for opened in (False, True)
        )

    def _takes_not(self, model: onnx.ModelProto, inputs: Mapping[str, Array]) -> bool:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "part.onnx"
            onnx.save(model, path)
            case = Case(path, self.engine)
            if case.voice is None:
                return True
            try:
                case.voice.run(inputs)
            except Refused:
                return True
            return False

    def kept(self, nodes: Sequence[str], samples: Sequence[Feeds]) -> dict[str, Any]:
        """How many samples pass with these nodes exact, and how many do without any."""
        try:
            interpreter = Interpreter(
                self.path, evaluator(self.rounding) if self.engine.startswith("reference") else None
            )
            places = named(interpreter, nodes, self.results)
            changes = Changes(self.rounding, frozenset(places.values()))
            right = [interpreter.run(feeds) for feeds in samples]
            errors = [
                distance(interpreter.run(f, changes), r)
                for f, r in zip(samples, right, strict=True)
            ]
            plain = [
                distance(interpreter.run(f, Changes(self.rounding)), r)
                for f, r in zip(samples, right, strict=True)
            ]
        except NotInterpreted as error:
            return {"ok": None, "why": str(error)}
        found = _held(errors, self.tolerance)
        computing = sum(p.node.op_type != "Constant" for p in interpreter.places)
        missing = [n for n in nodes if n not in places]
        return {
            **found,
            "plain_ok": _held(plain, self.tolerance)["ok"],
            "missing": len(missing),
            "of": computing,
        }

    def switched(self, disabled: Sequence[str], samples: Sequence[Feeds]) -> dict[str, Any]:
        """How many samples pass on ONNX Runtime with these optimizers off."""
        off = [name for name in disabled if "=" not in name]
        voice = OnnxRuntime(str(self.path), True, off, prepacking="prepacking=true" not in disabled)
        return _held(
            [distance(voice.run(f), self.reference.run(f)) for f in samples], self.tolerance
        )

    def in_fp32(self, samples: Sequence[Feeds]) -> dict[str, Any]:
        """How many samples pass on OpenVINO with its precision set to f32."""
        voice = OpenVino(str(self.path), "f32")
        return _held(
            [distance(voice.run(f), self.reference.run(f)) for f in samples], self.tolerance
        )

    def file(self, path: Path, samples: Sequence[Feeds]) -> dict[str, Any]:
        """How many samples pass with this file on the engine, in place of the model."""
        other = Case(path, self.engine)
        if other.voice is None:
            return {"ok": None, "why": other.refused}
        try:
            return _held(
                [distance(other.voice.run(f), self.reference.run(f)) for f in samples],
                self.tolerance,
            )
        except (Refused, NotInterpreted) as error:
            return {"ok": None, "why": str(error)}


def worst_row(feeds: Feeds, made: Mapping[str, Array], right: Mapping[str, Array]) -> float:
    """The worst distance of a row, where every input and output has the same number of them; else
    that of the whole."""
    counts = {value.shape[0] if value.ndim else 0 for value in (*feeds.values(), *right.values())}
    count = counts.pop()
    if (
        counts
        or count < 2
        or any(np.shape(made.get(name)) != np.shape(value) for name, value in right.items())
    ):
        return distance(made, right)
    return max(
        distance(
            {n: v[i : i + 1] for n, v in made.items()}, {n: v[i : i + 1] for n, v in right.items()}
        )
        for i in range(count)
    )


def state_of(errors: Sequence[float], noise: Sequence[float], tolerance: float) -> str:
    """fails, passes, borderline or undetermined; from the worst samples' errors and noise, sample
    by sample.

    Borderline: either answer is right, as the error is near the tolerance, or the noise near the
    error on some of the samples."""
    clear = [(e, n) for e, n in zip(errors, noise, strict=True) if e > tolerance * CLEAR]
    if not clear:
        return "passes" if all(e < tolerance / CLEAR for e in errors) else "borderline"
    if all(n < e / 10 for e, n in clear):
        return "fails"
    return "undetermined" if all(n >= e / 2 for e, n in clear) else "borderline"


def part(
    interpreter: Interpreter,
    nodes: Sequence[int],
    values: Mapping[str, Array],
    opened: bool = False,
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """These nodes as a model of their own, and what it is fed: the values that the reference has
    there. ``opened``: what the model itself is fed has the dimensions that the model declares, all
    else is fed with dimensions that are not known. What is made of weights alone, as the bias of a
    layer from its codes, is stored: fed, an engine could not join the layer with it."""
    graph = interpreter.model.graph
    chosen = [graph.node[i] for i in nodes]
    weights = {t.name: t for t in graph.initializer}
    made = {name for node in chosen for name in node.output if name}
    read = dict.fromkeys(name for node in chosen for name in reads_of(node) if name not in made)
    constants: set[str] = set()
    for node in graph.node:
        if not node.op_type.startswith("Random") and all(
            n in weights or n in constants for n in reads_of(node)
        ):
            constants.update(n for n in node.output if n)
    fed = {name: values[name] for name in read if name not in weights and name not in constants}
    stored = [weights[name] for name in read if name in weights]
    stored += [
        numpy_helper.from_array(values[name], name)
        for name in read
        if name in constants and name not in weights
    ]
    elsewhere = {name for i, node in enumerate(graph.node) if i not in nodes for name in node.input}
    outputs = [name for name in made if name in elsewhere or name in interpreter.outputs]
    built = helper.make_graph(
        chosen,
        "part",
        [
            _opened(interpreter, name, value) if opened else _info(name, value)
            for name, value in fed.items()
        ],
        [
            _free(name, values[name]) if opened else _info(name, values[name])
            for name in sorted(outputs)
        ],
        stored,
    )
    imports = [
        helper.make_opsetid(domain, version) for domain, version in interpreter.opsets.items()
    ]
    return helper.make_model(
        built, opset_imports=imports, ir_version=interpreter.model.ir_version
    ), fed


def _free(name: str, value: Array) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(
        name, helper.np_dtype_to_tensor_dtype(np.asarray(value).dtype), None
    )


def _opened(interpreter: Interpreter, name: str, value: Array) -> onnx.ValueInfoProto:
    declared = next((i for i in interpreter.model.graph.input if i.name == name), None)
    if declared is not None:
        return declared
    kind = helper.np_dtype_to_tensor_dtype(np.asarray(value).dtype)
    return helper.make_tensor_value_info(name, kind, [None] * np.ndim(value))


def _info(name: str, value: Array) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(
        name, helper.np_dtype_to_tensor_dtype(np.asarray(value).dtype), np.shape(value)
    )


def _rounded_culprits(
    interpreter: Interpreter,
    places: frozenset[Where],
    feeds: Feeds,
    expected: Mapping[str, Array],
    precision: str,
    tolerance: float,
) -> dict[str, Any]:
    def off(
        changes: Changes,
    ) -> float:  # of the worst row: whether a batch is one sample is for whoever asks
        return worst_row(feeds, interpreter.run(feeds, changes), expected)

    whole, spared = off(Changes(precision)), off(Changes(precision, exact=places))
    alone = off(Changes(precision, only=places))
    cures = whole > tolerance and spared < whole and (spared <= tolerance or spared <= whole / 2)
    return {
        "true": bool(cures or alone > tolerance), "whole": whole, "spared": spared, "alone": alone, "cures": bool(cures),
    }  # fmt: skip


def _held(errors: Sequence[float], tolerance: float) -> dict[str, Any]:
    return {
        "ok": sum(e <= tolerance for e in errors),
        "n": len(errors),
        "worst": max(errors, default=0.0),
    }


def _precision(engine: str) -> str:
    if engine.startswith(("emulate", "reference")):
        return "bf16" if "bf16" in engine else "fp16"
    return "fp32"
