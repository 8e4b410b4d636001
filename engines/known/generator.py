"""A case as a program of a few lines: onnx.helper and numpy make it at any size, and with what
matters changed. Pure: text.

The program is ours and needs nothing of ours: whoever gets it runs ``python make_case.py`` and has
``case.onnx`` and ``inputs.npz``."""

import keyword
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from narrowdown.engines.known.entry import Construction, MadeTensor, Stated
from narrowdown.engines.known.varied import (
    ABSENT,
    DRAWN,
    FEW,
    OPEN,
    Factor,
    Level,
    Place,
    decode,
    ends_of_few,
    is_list,
    name_values,
)

Sizes: TypeAlias = Mapping[
    Place, Sequence[tuple[str, int]]
]  # the parameters that a number follows, with what they are in the case
NAME = "make_case.py"
# Kinds that the program has a parameter for.
SHOWN = ("size", "attribute", "opset", "type", "entries", "number", "values", "scale", "open")

_HEAD = '''"""{title}

{line}
Writes case.onnx and inputs.npz: python make_case.py [NAME=VALUE ...], such as {example}
"""

import ast
import sys

import numpy as np
from onnx import TensorProto, checker, helper, numpy_helper, save, shape_inference

FIRES = {fires}
PASSES = {passes}
REFUSED = {refused}


def drawn(seed, shape, dtype, low, high, step=0):
    """Values drawn evenly, both ends among them; multiples of a step, where there is one."""
    values = np.array(np.random.default_rng(seed).uniform(low, high, shape))
    values = np.rint(values / step) * step if step else values
    if values.size:
        values.flat[-1], values.flat[0] = sorted((low, high), key=abs)
    return (np.rint(values) if np.dtype(dtype).kind in "iub" else values).astype(dtype)


def make({parameters}):
    """(model, what its inputs are fed)"""
{body}

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

    parameters = ", ".join(f"{of[f]}={_value(f, f.base)!r}" for f in of)
    first = next((f"{of[f]}={_value(f, f.base)!r}".replace(" ", "") for f in of), "")
    return _HEAD.format(
        title=_plain(program.title),
        line=_plain(program.line),
        example=_plain(first) or "nothing",
        fires=rows(program.fires, "{}"),
        passes=rows(program.passes),
        refused=rows(program.refused),
        parameters=f"*, {parameters}" if parameters else "",
        body="\n".join(f"    {one}" for one in _body(program.made, list(of), of)) + "\n",
    )


def name_parameters(factors: Sequence[Factor]) -> dict[str, str]:
    """A name that Python takes for each factor, by its own."""
    found: dict[str, str] = {}
    for factor in factors:
        name = re.sub(r"\W+", "_", factor.name, flags=re.ASCII).strip("_").lower() or "n"
        name = f"n_{name}" if name[0].isdigit() else name
        while (
            name in found.values()
            or keyword.iskeyword(name)
            or name
            in (
                "rng",
                "np",
                "model",
                "feeds",
                "weights",
                "nodes",
                "graph",
                "helper",
                "save",
            )
        ):
            name += "_"
        found[factor.name] = name
    return found


def _body(made: Construction, shown: Sequence[Factor], of: Mapping[Factor, str]) -> list[str]:
    sizes: dict[Place, list[tuple[str, int]]] = {}
    for f in shown:
        for p in f.places if f.kind == "size" else ():
            sizes.setdefault(msgspec.structs.replace(p, times=1), []).append(
                (of[f], max(1, int(f.base)))
            )
    about: dict[tuple[str, str, str], str] = {(f.kind, f.of, f.key): of[f] for f in shown}
    types = {str(f.base): of[f] for f in shown if f.kind == "type"}
    numpy_of = f"helper.tensor_dtype_to_np_dtype(getattr(TensorProto, {dict(_ONNX)!r}"
    lines = [*(f"{name}_np = {numpy_of}[{name}]))" for name in types.values()), "weights = {"]
    lines += [
        f"    {n!r}: {_array(n, t, i, sizes, about, types)},"
        for i, (n, t) in enumerate(made.weights.items())
    ]
    lines += ["}", "feeds = {"]
    lines += [
        f"    {n!r}: {_array(n, t, 100 + i, sizes, about, types)},"
        for i, (n, t) in enumerate(made.inputs.items())
    ]
    which = about.get(("open", "", ""))
    opened = {n: t.open or (0,) for n, t in made.inputs.items() if t.open or (which and t.shape)}
    lines += [
        "}",
        f"opened = {opened!r}{f' if {which} == {OPEN!r} else {{}}' if which else ''}",
        "nodes = [",
    ]
    for at, node in enumerate(made.nodes):
        stated = [
            f"{k!r}: {_attribute(at, k, v, sizes, about)}" for k, v in node.attributes.items()
        ]
        domain = f", domain={node.domain!r}" if node.domain else ""
        called = f"    helper.make_node({node.op!r}, {list(node.inputs)!r}, {list(node.outputs)!r}{domain}"
        has = (
            f", **{{k: v for k, v in {{{', '.join(stated)}}}.items() if v is not None}}"
            if stated
            else ""
        )
        lines.append(f"{called}{has}),")
    lines += ["]", "graph = helper.make_graph(", "    nodes,", "    'case',"]
    lines.append(
        "    [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), "
        "[None if at in opened.get(n, ()) else d for at, d in enumerate(a.shape)]) for n, a in feeds.items()],"
    )
    outs = ", ".join(
        f"({n!r}, {f'helper.np_dtype_to_tensor_dtype({types[d]}_np)' if d in types else f'TensorProto.{_ONNX[d]}'})"
        for n, d in made.outputs.items()
    )
    lines.append(f"    [helper.make_tensor_value_info(n, t, None) for n, t in [{outs}]],")
    lines += ["    [numpy_helper.from_array(a, n) for n, a in weights.items()],", ")"]
    opset = about.get(("opset", "", ""), str(made.opset))
    domains = sorted({n.domain for n in made.nodes if n.domain})
    imports = ", ".join(
        [f"helper.make_opsetid('', {opset})", *(f"helper.make_opsetid({d!r}, 1)" for d in domains)]
    )
    lines.append(f"model = helper.make_model(graph, opset_imports=[{imports}], ir_version=10)")
    lines.append("model = shape_inference.infer_shapes(model, strict_mode=True)")
    lines.append("del model.graph.value_info[:]")
    lines += ["checker.check_model(model)", "return model, feeds"]
    return lines


_ONNX: Mapping[str, str] = {
    "float32": "FLOAT", "float64": "DOUBLE", "float16": "FLOAT16", "bfloat16": "BFLOAT16", "int8": "INT8", "int16": "INT16",
    "int32": "INT32", "int64": "INT64", "uint8": "UINT8", "uint16": "UINT16", "uint32": "UINT32", "uint64": "UINT64",
    "bool": "BOOL",
}  # fmt: skip


def _array(
    name: str, tensor: MadeTensor, seed: int, sizes: Sizes, about: Mapping[tuple[str, str, str], str],
    types: Mapping[str, str],
) -> str:  # fmt: skip
    """An expression that gives the tensor's values."""
    dims = [_sized(sizes, Place("dim", name, axis), n) for axis, n in enumerate(tensor.shape)]
    shape = f"({', '.join(dims)}{',' if len(dims) == 1 else ''})"
    dtype = f"{types[tensor.dtype]}_np" if tensor.dtype in types else f"np.dtype({tensor.dtype!r})"
    if tensor.dtype == "bfloat16" and tensor.dtype not in types:
        dtype = "helper.tensor_dtype_to_np_dtype(TensorProto.BFLOAT16)"
    if whole := about.get(("entries", name, "")) or about.get(("number", name, "")):
        return f"np.array({whole}).reshape({shape}).astype({dtype})"
    scale = about.get(("scale", name, ""))
    if tensor.values is not None:
        values = [
            _sized(sizes, Place("entry", name, i), v) if is_list(tensor) else repr(v)
            for i, v in enumerate(tensor.values)
        ]
        made = f"np.resize(np.array([{', '.join(values)}]), {shape})"
        return f"({made} * {scale}).astype({dtype})" if scale else f"{made}.astype({dtype})"
    low, high = tensor.range
    if holds := about.get(("values", name, "")):
        most = max(abs(low), abs(high)) or 1.0
        ends = {
            DRAWN: (low, high), name_values(tensor): (low, high), FEW: (*ends_of_few(low, high), most / 2), "zeros": (0.0, 0.0),
            "positive": (most / 2, most), "negative": (-most, -most / 2), "both signs": (-most, most),
        }  # fmt: skip
        return f"drawn({seed}, {shape}, {dtype}, *(e * {scale or 1} for e in {ends!r}[{holds}]))"
    times = f" * {scale}" if scale else ""
    return f"drawn({seed}, {shape}, {dtype}, {low!r}{times}, {high!r}{times})"


def _attribute(
    at: int, key: str, stated: Stated, sizes: Sizes, about: Mapping[tuple[str, str, str], str]
) -> str:
    if parameter := about.get(("attribute", str(at), key)):
        return parameter
    if isinstance(stated, list):
        return f"[{', '.join(_sized(sizes, Place('attribute', str(at), i, key), v) for i, v in enumerate(stated))}]"
    return _sized(sizes, Place("attribute", str(at), -1, key), stated)


def _sized(sizes: Sizes, place: Place, stated: Any) -> str:
    """The number, or what becomes of it with the sizes that it follows."""
    follows = sizes.get(place, ())
    if not follows:
        return repr(stated)
    rest, part = divmod(int(stated), whole := math.prod(base for _, base in follows))
    if part:  # less than what it follows: half a block
        return " * ".join([str(stated), *(name for name, _ in follows)]) + f" // {whole}"
    return " * ".join([*([str(rest)] if rest != 1 else []), *(name for name, _ in follows)])


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
