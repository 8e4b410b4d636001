"""A case as a program of a few lines: onnx.helper and numpy make it at any size, and with what
matters changed. Pure: text.

The program is ours and needs nothing of ours: whoever gets it runs ``python make_case.py`` and has
``case.onnx`` and ``inputs.npz``."""

import keyword
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from narrowdown.engines.known.entry import Construction, MadeTensor, Stated
from narrowdown.engines.known.varied import (
    ABSENT,
    FEW,
    OPEN,
    Factor,
    Level,
    Place,
    decode,
    is_list,
    list_spans,
    name_values,
    step_of_few,
)

NAME = "make_case.py"
# Names of the program's own.
_TAKEN = {"np", "helper", "tensor", "node", "model", "feeds", "weights", "opened", "nodes", "graph"}
# Kinds that the program has a parameter for.
SHOWN = ("size", "attribute", "opset", "type", "entries", "number", "values", "scale", "open")

_PROGRAM = '''"""{title}

{line}
Writes case.onnx and inputs.npz: python make_case.py [NAME=VALUE ...], such as {example}
"""

import ast
import sys

import numpy as np
from onnx import TensorProto, checker, helper, numpy_helper, save, shape_inference

TYPES = {{
    "float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE, "float16": TensorProto.FLOAT16,
    "bfloat16": TensorProto.BFLOAT16, "int8": TensorProto.INT8, "int16": TensorProto.INT16, "int32": TensorProto.INT32,
    "int64": TensorProto.INT64, "uint8": TensorProto.UINT8, "uint16": TensorProto.UINT16, "uint32": TensorProto.UINT32,
    "uint64": TensorProto.UINT64, "bool": TensorProto.BOOL,
}}
FIRES = {fires}
PASSES = {passes}
REFUSED = {refused}


def tensor(seed, dtype, shape, *, values=None, ends=(0, 0), scale=1):
    """These values over and over; or drawn evenly, both ends among them (multiples of a step, where a third number is one)."""
    dtype = helper.tensor_dtype_to_np_dtype(TYPES[dtype])
    if values is not None:
        return (np.resize(np.array(values), shape) * scale).astype(dtype)
    low, high, *step = (end * scale for end in ends)
    values = np.array(np.random.default_rng(seed).uniform(low, high, shape))
    values = np.rint(values / step[0]) * step[0] if step else values
    if values.size:
        values.flat[-1], values.flat[0] = sorted((low, high), key=abs)
    return (np.rint(values) if np.dtype(dtype).kind in "iub" else values).astype(dtype)


def node(op, inputs, outputs, attributes, domain=""):
    """Attributes that are None are left out."""
    stated = {{name: value for name, value in attributes.items() if value is not None}}
    return helper.make_node(op, inputs, outputs, domain=domain, **stated)


def make({parameters}):
    """(model, what its inputs are fed)"""
    weights = {{{weights}
    }}
    feeds = {{{feeds}
    }}
    opened = {opened}
    nodes = [{nodes}
    ]
    graph = helper.make_graph(
        nodes,
        "case",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype),
                                       [None if at in opened.get(n, ()) else d for at, d in enumerate(a.shape)])
         for n, a in feeds.items()],
        [helper.make_tensor_value_info(n, TYPES[dtype], None) for n, dtype in [{outputs}]],
        [numpy_helper.from_array(a, n) for n, a in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[{imports}], ir_version=10)
    model = shape_inference.infer_shapes(model, strict_mode=True)
    del model.graph.value_info[:]
    checker.check_model(model)
    return model, feeds


if __name__ == "__main__":
    given = dict(word.split("=", 1) for word in sys.argv[1:])
    chosen = {{**FIRES[0], **{{name: ast.literal_eval(value) for name, value in given.items()}}}}
    model, feeds = make(**chosen)
    save(model, "case.onnx")
    np.savez("inputs.npz", **feeds)
    print("case.onnx and inputs.npz:", ", ".join(f"{{name}}={{value!r}}" for name, value in chosen.items()) or "as in the case")
'''


class Program(msgspec.Struct, frozen=True):
    """What the program is written from. ``factors``: what it has parameters for; ``fires``,
    ``passes``, ``refused``: levels of factors, by name, that were seen to do so. ``line``: what was
    found."""

    made: Construction
    factors: tuple[Factor, ...]
    fires: tuple[tuple[str, Level], ...]
    passes: tuple[tuple[str, Level], ...]
    refused: tuple[tuple[str, Level], ...] = ()
    title: str = ""
    line: str = ""


def write_generator(program: Program) -> str:
    """The program's text. Of a ``program`` that a stranger has made it runs nothing but what stands
    here: numbers and names are quoted. Raises ValueError, LookupError, TypeError, ArithmeticError,
    RecursionError for one that makes no sense."""
    shown = {f.name: f for f in program.factors if f.kind in SHOWN}
    names = name_parameters(list(shown.values()))
    of = {f: names[name] for name, f in shown.items()}

    def rows(levels: Sequence[tuple[str, Level]], *more: str) -> str:
        said = ({names[n]: _value(shown[n], level)} for n, level in levels if n in shown)
        made = dict.fromkeys((*more, *map(repr, said)))
        return "[" + "".join(f"\n    {one}," for one in made) + ("\n]" if made else "]")

    parameters = [f"{of[f]}={_value(f, f.base)!r}" for f in of]
    return _PROGRAM.format(
        title=_plain(program.title),
        line=_plain(program.line),
        example=_plain(parameters[0].replace(" ", "")) if parameters else "nothing",
        fires=rows(program.fires, "{}"),
        passes=rows(program.passes),
        refused=rows(program.refused),
        parameters=", ".join(["*", *parameters] if parameters else []),
        **_Writer(program.made, of).write(),
    )


def name_parameters(factors: Sequence[Factor]) -> dict[str, str]:
    """A name that Python takes for each factor, by its own."""
    found: dict[str, str] = {}
    for factor in factors:
        name = re.sub(r"\W+", "_", factor.name, flags=re.ASCII).strip("_").lower() or "n"
        name = f"n_{name}" if name[0].isdigit() else name
        while name in found.values() or keyword.iskeyword(name) or name in _TAKEN:
            name += "_"
        found[factor.name] = name
    return found


class _Writer:
    """The expressions of a program, with a parameter in place of what is shown of the case."""

    def __init__(self, made: Construction, parameters: Mapping[Factor, str]) -> None:
        self._made = made
        self._about = {(f.kind, f.of, f.key): name for f, name in parameters.items()}
        self._types = {str(f.base): name for f, name in parameters.items() if f.kind == "type"}
        # The parameters that a number follows, with what they are in the case.
        self._sizes: dict[Place, list[tuple[str, int]]] = {}
        for factor, name in parameters.items():
            for place in factor.places if factor.kind == "size" else ():
                at = msgspec.structs.replace(place, times=1)
                self._sizes.setdefault(at, []).append((name, max(1, int(factor.base))))

    def write(self) -> dict[str, str]:
        """What stands in the program's own function, by its place there."""
        made = self._made
        opset = self._about.get(("opset", "", ""), str(made.opset))
        domains = sorted({n.domain for n in made.nodes if n.domain})
        imports = [("", opset), *((domain, "1") for domain in domains)]
        return {
            "weights": self._write_tensors(made.weights, 0),
            "feeds": self._write_tensors(made.inputs, 100),
            "opened": self._write_opened(),
            "nodes": "".join(map(self._write_node, range(len(made.nodes)))),
            "outputs": ", ".join(f"({n!r}, {self._type(d)})" for n, d in made.outputs.items()),
            "imports": ", ".join(f"helper.make_opsetid({d!r}, {v})" for d, v in imports),
        }

    def _type(self, dtype: str) -> str:
        return self._types.get(dtype, repr(dtype))

    def _write_tensors(self, tensors: Mapping[str, MadeTensor], seed: int) -> str:
        return "".join(
            f"\n        {name!r}: tensor({seed + i}, {self._write_tensor(name, tensor)}),"
            for i, (name, tensor) in enumerate(tensors.items())
        )

    def _write_opened(self) -> str:
        which = self._about.get(("open", "", ""))
        inputs = self._made.inputs.items()
        opened = {n: t.open or (0,) for n, t in inputs if t.open or (which and t.shape)}
        return f"{opened!r}{f' if {which} == {OPEN!r} else {{}}' if which else ''}"

    def _write_node(self, at: int) -> str:
        n = self._made.nodes[at]
        stated = (f"{k!r}: {self._write_attribute(at, k, v)}" for k, v in n.attributes.items())
        attributes = f"{{{', '.join(stated)}}}{f', {n.domain!r}' if n.domain else ''}"
        return f"\n        node({n.op!r}, {list(n.inputs)!r}, {list(n.outputs)!r}, {attributes}),"

    def _write_tensor(self, name: str, tensor: MadeTensor) -> str:
        """What the tensor is made of, as arguments of a call."""
        dims = [self._sized(Place("dim", name, axis), n) for axis, n in enumerate(tensor.shape)]
        shape = f"({', '.join(dims)}{',' if len(dims) == 1 else ''})"
        about = {kind: word for (kind, of, _), word in self._about.items() if of == name}
        made = f"ends={tensor.range!r}"
        if whole := about.get("entries") or about.get("number"):
            made = f"values={whole}"
        elif tensor.values is not None:
            each = (self._write_entry(name, tensor, i) for i in range(len(tensor.values)))
            made = f"values=[{', '.join(each)}]"
        elif holds := about.get("values"):
            spans: dict[Level, tuple[float, ...]] = {**list_spans(tensor)}
            spans[name_values(tensor)] = tensor.range
            spans[FEW] = (*spans[FEW], step_of_few(tensor.range))
            made = f"ends={spans!r}[{holds}]"
        scale = f", scale={about['scale']}" if "scale" in about else ""
        return f"{self._type(tensor.dtype)}, {shape}, {made}{scale}"

    def _write_entry(self, name: str, tensor: MadeTensor, at: int) -> str:
        value = (tensor.values or [])[at]
        return self._sized(Place("entry", name, at), value) if is_list(tensor) else repr(value)

    def _write_attribute(self, at: int, key: str, stated: Stated) -> str:
        if parameter := self._about.get(("attribute", str(at), key)):
            return parameter
        if not isinstance(stated, list):
            return self._sized(Place("attribute", str(at), -1, key), stated)
        each = (self._sized(Place("attribute", str(at), i, key), v) for i, v in enumerate(stated))
        return f"[{', '.join(each)}]"

    def _sized(self, place: Place, stated: Any) -> str:
        """The number, or what becomes of it with the sizes that it follows."""
        follows = self._sizes.get(place, ())
        if not follows:
            return repr(stated)
        names = [name for name, _ in follows]
        rest, part = divmod(int(stated), whole := math.prod(base for _, base in follows))
        if part:  # less than what it follows: half a block
            return " * ".join([str(stated), *names]) + f" // {whole}"
        return " * ".join([*([str(rest)] if rest != 1 else []), *names])


def _value(factor: Factor, level: Level) -> Any:
    """A level as the parameter takes it: None for what is left out; a scale as what values are
    multiplied by."""
    if factor.kind == "scale":
        return 2.0 ** (int(level) - int(factor.base))
    return None if level == ABSENT else decode(level)


def _plain(text: str) -> str:
    """Text that a docstring can hold: one line, in ASCII."""
    text = text.replace("\\", "/").replace('"""', "'''")
    return text.encode("unicode_escape").decode()
