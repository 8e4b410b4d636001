"""A workaround in the words of the tools that convert a model to FP16 or BF16, or quantize it,
whatever runs it then. Text only."""

import re
import shlex
from collections.abc import Mapping
from pathlib import PurePath

from narrowdown.engines.declaration import Cure, Program, Recipe

TYPES = {"fp16": "float16", "bf16": "bfloat16"}  # what casts in a file can say
_MODEL, _MADE, INSIDE = "model.onnx", "converted.onnx", "float32-inside.onnx"


def conversion_recipes(precision: str, cure: Cure) -> list[Recipe]:
    """For nodes that stay in FP32 while the rest is converted; none for any other workaround. Both
    tools go by names: a node that has none cannot be told to them, so there is nothing to paste
    where one of the kept ones has none."""
    if precision not in TYPES or not cure.keep or cure.nameless:
        return []
    files = {"onnx_path": _MODEL, "output_path": _MADE, "low_precision_type": precision}
    return [
        Recipe(
            "NVIDIA ModelOpt AutoCast, which keeps more in FP32 where it sees need",
            "sh",
            _write_modelopt("autocast", files, cure.keep),
        ),
        *([_onnxconverter(cure.keep)] if precision == "fp16" else []),
    ]


def module_recipes(precision: str, program: Program | None) -> list[Recipe]:
    """For nodes that stay in FP32 while the PyTorch module is converted: it is exported again, and no
    file of the user's is edited. None where its function cannot be imported by these names."""
    if precision not in TYPES or program is None:
        return []
    place, _, function = program.source.rpartition(":")
    name = PurePath(place).name.removesuffix(".py")
    brought = f"\nfrom {name} import {function.partition('.')[0]}\n"
    found = f"{function} if isinstance({function}, (torch.nn.Module, tuple)) else {function}()"
    if program.source.endswith(".pt2"):
        brought, found = "", f"torch.export.unflatten(torch.export.load({program.source!a}))"
    elif not all(map(str.isidentifier, [*name.split("."), *function.split(".")])):
        return []
    call = (
        _write_call(program.example) or "((), inputs) if isinstance(inputs, dict) else (inputs, {})"
    )
    text = f"""import torch
from torch.utils._pytree import tree_map_only
{brought}

def compute_in(dtype, module, around):
    def cast(values, to):
        return tree_map_only(torch.Tensor, lambda t: t.to(to) if t.is_floating_point() else t, values)

    module.to(dtype)
    module.register_forward_pre_hook(lambda _, args, kwargs: cast((args, kwargs), dtype), with_kwargs=True)
    module.register_forward_hook(lambda _, args, given: cast(given, around))


found = {found}
# The module; it may stand in front of example inputs and options of the export.
model, inputs, *options = found if isinstance(found, tuple) else (found, None)
args, kwargs = {call}
compute_in(torch.{TYPES[precision]}, model.eval(), around=torch.float32)
for path in {write_list(program.modules)}:
    compute_in(torch.float32, model.get_submodule(path), around=torch.{TYPES[precision]})
program = torch.onnx.export(model, args, kwargs=kwargs, dynamo=True, **dict(*options))
graph = program.model.graph
for node in graph:
    for value in node.outputs:
        value.name += "_inside"  # the names of the outputs are free then
for value, name in zip((*graph.inputs, *graph.outputs), {write_list(program.ends)}):
    value.name = name
program.save("{INSIDE}")"""
    check = f"narrowdown step compare {INSIDE} --engine emulate:precision=typed --reference onnxruntime:model={_MODEL}"
    start, end = text.index("for path"), text.index("\nprogram =")
    return [
        Recipe("PyTorch, which exports again", "python", text, text[start:end]),
        Recipe("a check of that export: it obeys the types of the file", "sh", check),
    ]


def _write_call(example: Mapping[str, tuple[str, tuple[int, ...]]]) -> str:
    """Arguments as Python reads them, by place and by name, each of zeros; "" where none are known.
    An export takes nothing of them but types and shapes."""
    zeros = {
        name: f"torch.zeros({list(shape)}, dtype=torch.{kind})"
        for name, (kind, shape) in example.items()
    }
    placed = "".join(f"{zeros[name]}, " for name in zeros if name.isdigit())
    named = ", ".join(f"{name!a}: {zeros[name]}" for name in zeros if not name.isdigit())
    return f"({placed}), {{{named}}}" if zeros else ""


_FLOAT, _DATA, _EACH = "float.onnx", "calibration.npz", "calibration*.npz"


def quantization_recipes(cure: Cure) -> list[Recipe]:
    """For layers that stay in float while the model is quantized anew; none where one has no
    name."""
    if not cure.quantized or not cure.keep or cure.nameless:
        return []
    left = (*cure.keep, *filter(None, cure.left_out))
    text = f"""from glob import glob

import numpy as np
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static


class Reader(CalibrationDataReader):
    def __init__(self):
        # An array for each input in each file, as you calibrated before.
        self.feeds = iter([dict(np.load(file)) for file in sorted(glob("{_EACH}"))])

    def get_next(self):
        return next(self.feeds, None)


exclude = {write_list(left)}
quantize_static(
    "{_FLOAT}", "{_MODEL}", Reader(), {cure.quantized}, nodes_to_exclude=exclude
)"""
    start = text.index("exclude =")
    recipe = Recipe(
        "onnxruntime.quantization", "python", text, text[start:].rpartition("\nquant")[0]
    )
    # A tool is told where it makes such codes.
    codes = set(re.findall(r"QuantType\.QU?(\w+)", cure.quantized))
    if codes == {"Int8"}:
        return [recipe, _modelopt(cure, left, "int8"), _nncf(left)]
    return [recipe, *([_modelopt(cure, left, "fp8")] if codes == {"FLOAT8E4M3FN"} else [])]


def _modelopt(cure: Cure, keep: tuple[str, ...], codes: str) -> Recipe:
    options = {
        "onnx_path": _FLOAT, "calibration_data_path": _DATA, "output_path": _MODEL, "quantize_mode": codes,
        # Left to itself it converts what stays in float to FP16, which nobody measured.
        "high_precision_dtype": cure.floats.replace("bfloat", "bf").replace("float", "fp"),
    }  # fmt: skip
    return Recipe(
        "NVIDIA ModelOpt, for TensorRT; it calibrates otherwise, so measure again",
        "sh",
        _write_modelopt("quantization", options, keep),
    )


def _write_modelopt(program: str, options: Mapping[str, str], keep: tuple[str, ...]) -> str:
    told = [word for name, value in options.items() for word in (f"--{name}", value)]
    # It matches each word as a regular expression from the start of a name on.
    patterns = [f"^{re.escape(name)}$" for name in keep]
    return shlex.join(
        ["python", "-m", f"modelopt.onnx.{program}", *told, "--nodes_to_exclude", *patterns]
    )


def _nncf(keep: tuple[str, ...]) -> Recipe:
    text = f"""from glob import glob

import nncf
import numpy as np
import onnx

data = nncf.Dataset([dict(np.load(file)) for file in sorted(glob("{_EACH}"))])
scope = nncf.IgnoredScope(names={write_list(keep)})
model = nncf.quantize(onnx.load("{_FLOAT}"), data, ignored_scope=scope)
onnx.save(model, "{_MODEL}")"""
    start, end = text.index("scope ="), text.index("\nmodel =")
    return Recipe(
        "NNCF, for OpenVINO; it calibrates otherwise, so measure again",
        "python",
        text,
        text[start:end],
    )


def _onnxconverter(keep: tuple[str, ...]) -> Recipe:
    text = f"""import onnx
from onnxconverter_common import float16

model = onnx.load("{_MODEL}")
# Its own list of operators stays as it is; these nodes come on top, and Casts: it leaves a Cast to float and takes what that
# gives for a half (seen with 1.16). By name, as with Cast in its list of operators it does not end.
casts = [node.name for node in model.graph.node if node.op_type == "Cast"]
converted = float16.convert_float_to_float16(model, keep_io_types=True, node_block_list=casts + {write_list(keep)})
onnx.save(converted, "{_MADE}")"""
    return Recipe(
        "onnxconverter-common",
        "python",
        text,
        text[text.index("converted =") :].rpartition("\n")[0],
    )


def write_list(names: tuple[str, ...]) -> str:
    """A list as Python reads it, in ASCII: a name may hold what an editor or a terminal acts on."""
    if len(names) == 1:
        return f"[{names[0]!a}]"
    return "[\n" + "".join(f"    {name!a},\n" for name in names) + "]"
