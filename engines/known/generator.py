"""A case as a program of a few lines, which onnx and numpy run. Pure: text.

The program is ours and needs nothing of ours: whoever gets it runs ``python make_case.py`` and has
``case.onnx`` and ``inputs.npz``."""

import pprint

import msgspec

from narrowdown.engines.known.entry import Construction

NAME = "make_case.py"

_PROGRAM = '''"""{title}

{line}
Writes case.onnx and inputs.npz. Another size, type, attribute or value: change it in CASE.
"""

import numpy as np
from onnx import TensorProto, checker, helper, numpy_helper, save, shape_inference

CASE = {case}


def element_type(dtype):
    return TensorProto.DataType.Value({{"float32": "FLOAT", "float64": "DOUBLE"}}.get(dtype, dtype.upper()))


def tensor(seed, dtype, shape, range, values, special, step, open):
    """These values, or some drawn evenly from the range, both ends among them."""
    kind = helper.tensor_dtype_to_np_dtype(element_type(dtype))
    if values is None:
        drawn = np.array(np.random.default_rng(seed).uniform(*range, shape))
        drawn = np.rint(drawn / step) * step if step else drawn
        if drawn.size:
            drawn.flat[-1], drawn.flat[0] = sorted(range, key=abs)
        values = np.rint(drawn) if kind.kind in "iub" else drawn
    made = np.resize(np.array(values), shape).astype(kind)
    if special and made.size:
        made.flat[0] = float(special)
    return made


def make(opset, inputs, nodes, outputs, weights):
    """(model, what its inputs are fed)"""
    weights = {{n: tensor(seed, **t) for seed, (n, t) in enumerate(weights.items())}}
    feeds = {{n: tensor(100 + seed, **t) for seed, (n, t) in enumerate(inputs.items())}}
    graph = helper.make_graph(
        [
            helper.make_node(n["op"], n["inputs"], n["outputs"], domain=n["domain"], **n["attributes"])
            for n in nodes
        ],
        "case",
        [
            helper.make_tensor_value_info(
                n, element_type(t["dtype"]), [None if at in t["open"] else d for at, d in enumerate(t["shape"])]
            )
            for n, t in inputs.items()
        ],
        [helper.make_tensor_value_info(n, element_type(dtype), None) for n, dtype in outputs.items()],
        [numpy_helper.from_array(a, n) for n, a in weights.items()],
    )
    domains = sorted({{n["domain"] for n in nodes}} - {{""}})
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    model = shape_inference.infer_shapes(helper.make_model(graph, opset_imports=imports, ir_version=10), strict_mode=True)
    del model.graph.value_info[:]
    checker.check_model(model)
    return model, feeds


if __name__ == "__main__":
    model, feeds = make(**CASE)
    save(model, "case.onnx")
    np.savez("inputs.npz", **feeds)
    print("case.onnx and inputs.npz")
'''


class Program(msgspec.Struct, frozen=True):
    """What the program is written from. ``line``: what was found."""

    made: Construction
    title: str = ""
    line: str = ""


def write_generator(program: Program) -> str:
    """The program's text. Of a ``program`` that a stranger has made it runs nothing but what stands
    here: numbers and names are quoted."""
    case = pprint.pformat(
        msgspec.to_builtins(program.made), width=100, compact=True, sort_dicts=False
    )
    return _PROGRAM.format(title=_plain(program.title), line=_plain(program.line), case=case)


def _plain(text: str) -> str:
    """Text that a docstring can hold: one line, in ASCII."""
    text = text.replace("\\", "/").replace('"""', "'''")
    return text.encode("unicode_escape").decode()
