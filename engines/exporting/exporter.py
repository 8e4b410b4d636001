"""Exports a PyTorch module to ONNX and records what eager PyTorch computes on the way.

    python exporter.py REQUEST.json

It runs in the user's own interpreter: it imports torch, numpy and the standard library, and nothing
of ours. It talks by files. ``REQUEST.json`` names the module (``source``), files of ``inputs``, the
folder ``out`` and how many ``bytes`` of values it may write. It leaves there the model as
``CLASS.onnx``, a pair ``inputs-N.npz`` and ``golden-N.npz`` for each sample, where asked the ``program`` as ``program.pt2``,
and ``export.json``: what was done, or the sentence ``fault``.

The first ``golden`` file holds inner values as well, by the names of ONNX tensors. Two runs are
held against each other to pair them: eager PyTorch, and the exported program. Both go through
PyTorch's dispatcher, so that both are lists of the same operators. What stands in both lists at the
same place is one operator; the exporter gives an ONNX tensor the name of its node. A tensor that
leaves a module's scope is also the output of that module. So each value comes from the module as
the user runs it, never from the export.
"""

import contextlib
import difflib
import functools
import importlib
import importlib.util
import inspect
import json
import math
import pickle
import sys
import traceback
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

MISSING = ""
try:
    import numpy as np
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves
except ImportError as error:  # which ``main`` tells; lists of operators are compared without
    MISSING, TorchDispatchMode = str(error), object

# Operators that move or rename values: which of them run differs between a program and its export.
MOVES = frozenset(
    ["view", "_unsafe_view", "reshape", "_reshape_alias", "t", "transpose", "permute", "expand", "detach",
     "clone", "alias", "contiguous", "squeeze", "unsqueeze", "slice", "select", "unbind", "split",
     "split_with_sizes", "chunk", "as_strided", "copy", "lift_fresh", "lift_fresh_copy", "to", "unsafe_split",
     "unsafe_chunk", "narrow", "flatten", "getitem", "empty", "empty_like", "sym_size", "sym_numel",
     "sym_stride", "is_same_size"]
)  # fmt: skip
CONSTANT = 1e-5  # relative error of a constant that rounding to FP32 does not explain
SAID = 4  # differences that are told of one module
# What PyTorch computes in, by the coarsest type of what its operators give.
PRECISIONS = {"torch.bfloat16": "bf16", "torch.float16": "fp16"}
# Attributes of ONNX nodes beside the argument of the operator that they were made of.
ATTRIBUTES = {
    ("Gelu", "approximate"): "approximate",
    ("LayerNormalization", "epsilon"): "eps",
    ("RMSNormalization", "epsilon"): "eps",
    ("GroupNormalization", "epsilon"): "eps",
    ("InstanceNormalization", "epsilon"): "eps",
    ("BatchNormalization", "epsilon"): "eps",
    ("LeakyRelu", "alpha"): "negative_slope",
    ("Elu", "alpha"): "alpha",
    ("Softmax", "axis"): "dim",
    ("LogSoftmax", "axis"): "dim",
    ("Conv", "group"): "groups",
    ("Resize", "coordinate_transformation_mode"): "align_corners",
}


class Fault(Exception):
    """The export cannot be made; the message is a sentence for the user."""


# -- what the user names


def load_source(source: str) -> Any:
    """What ``/path/model.py:name``, ``package.module:name`` or ``/path/program.pt2`` stands for."""
    if source.endswith(".pt2"):
        return torch.export.load(source)
    place, _, name = source.rpartition(":")
    if place.endswith(".py"):
        path = Path(place)
        sys.path.insert(0, str(path.parent))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        if spec is None or spec.loader is None:
            raise Fault(f"'{path.name}' cannot be loaded as a Python script.")
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
    else:
        sys.path.insert(0, str(Path.cwd()))
        try:
            module = importlib.import_module(place)
        except ModuleNotFoundError as error:
            if error.name and (place == error.name or place.startswith(f"{error.name}.")):
                raise Fault(f"There is no module '{place}' in this interpreter.") from None
            raise
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            there = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
            near = difflib.get_close_matches(part, there, 1)
            end = f": did you mean {near[0]}?" if near else "."
            raise Fault(f"'{place}' has no attribute '{part}'{end}")
        found = getattr(found, part)
    return found


def open_module(found: Any) -> tuple[Any, Any, dict[str, Any]]:
    """(the module, example inputs or None, what torch.onnx.export is told beside them) of what was
    named: a module, a function that gives one, either of them with inputs beside it, and behind these
    options of the export; or an exported program."""
    if isinstance(found, torch.export.ExportedProgram):
        return found.module(), found.example_inputs, {}
    if inspect.isclass(found) or not isinstance(found, torch.nn.Module | tuple):
        found = found()
    given, options = None, dict[str, Any]()
    if isinstance(found, tuple) and len(found) in (2, 3):
        found, given, *more = found
        options = dict(*more)
    if not isinstance(found, torch.nn.Module):
        raise Fault(
            f"What was named gives {type(found).__name__}; it must give an nn.Module, or a module and "
            "its example inputs."
        )
    return found, given, options


# -- inputs


def as_call(given: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """(positional, named) arguments."""
    if isinstance(given, Mapping):
        return (), dict(given)
    if isinstance(given, tuple | list):
        parts = tuple(given)
        # torch.export keeps its example inputs as (positional, named).
        if len(parts) == 2 and isinstance(parts[0], tuple) and isinstance(parts[1], dict):
            return parts[0], parts[1]
        return parts, {}
    if isinstance(given, torch.Tensor):
        return (given,), {}
    raise Fault(
        f"Example inputs are a {type(given).__name__}; give a tensor, a tuple or a dict of them."
    )


def read_inputs(path: str, module: Any, like: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """One sample of a file: tensors by the names of ``forward``'s arguments, or in their order.
    ``like``: example inputs, whose form (positional or named) is kept."""

    def tensors(arrays: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: value if isinstance(value, torch.Tensor) else torch.from_numpy(np.array(value))
            for name, value in arrays.items()
        }

    file = Path(path)
    match file.suffix.lower():
        case ".npz":
            with np.load(path, allow_pickle=False) as held:
                found: Any = tensors({name: held[name] for name in held.files})
        case ".npy":
            return (torch.from_numpy(np.load(path, allow_pickle=False)),), {}
        case ".pt" | ".pth":
            try:
                found = torch.load(path, map_location="cpu", weights_only=True)
            except pickle.UnpicklingError:
                raise Fault(
                    f"'{file.name}' holds more than tensors, and nothing else of it is loaded."
                ) from None
        case _:  # .safetensors
            try:
                from safetensors.torch import load_file
            except ImportError:
                raise Fault("A .safetensors file needs: pip install safetensors.") from None
            found = load_file(path)
    if not isinstance(found, Mapping):
        return as_call(found)
    found = tensors(found)
    named = as_call(like)[1] if like is not None else {}
    names = list(named or inspect.signature(module.forward).parameters)
    if all(name in found for name in names[: len(found)]):
        given = {name: found[name] for name in names if name in found}
        return ((), given) if named else (tuple(given.values()), {})
    if unknown := sorted(set(found) - set(names)):
        if all(name.startswith("arr_") for name in found):
            return tuple(found.values()), {}
        raise Fault(
            f"'{file.name}' holds '{unknown[0]}', which forward() does not take; it takes {', '.join(names)}."
        )
    return (), found


def leaves(tree: Any) -> list[Any]:
    """The tensors of nested tuples, lists and dicts, in order."""
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


# -- two lists of operators


class Call:
    """One operator as the dispatcher ran it. ``node``: of the exported program."""

    def __init__(self, op: str, scope: str, shape: tuple[Any, ...], stated: dict[str, Any]) -> None:
        self.op, self.scope, self.shape, self.stated = op, scope, shape, stated
        self.given = shape  # as the node of the exported program gives it, which may be a view
        self.line = ""
        self.node = ""

    @property
    def key(self) -> tuple[Any, ...]:
        return self.op, self.scope, self.shape


class Recorder(TorchDispatchMode):  # type: ignore[misc]
    """A dispatch mode that lists operators. ``wanted``: places whose values are kept. ``scopes`` and
    ``node``: where the program is."""

    def __init__(self, wanted: Iterable[int] = (), *, lines: bool = False) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self.values: dict[int, Any] = {}
        self.types = set[str]()
        self.wanted, self.lines = frozenset(wanted), lines
        self.scopes: list[str] = [""]
        self.node = ""
        self.last: Any = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        op = func._schema.name.rpartition("::")[2].rstrip("_")
        first = leaves(out)[:1]
        kept = op == "_to_copy" and first and args[0].dtype == first[0].dtype
        if op in MOVES or not first or kept:
            return out
        call = Call(op, self.scopes[-1], tuple(first[0].shape), state_arguments(func, args, kwargs))
        call.node = self.node
        call.line = find_line() if self.lines else ""
        if len(self.calls) in self.wanted:
            self.values[len(self.calls)] = first[0].detach().clone()
        self.calls.append(call)
        self.types.add(str(first[0].dtype))
        self.last = first[0]
        return out


def state_arguments(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The operator's arguments that are no tensors, by name."""
    plain = (bool, int, float, str)
    given: dict[str, Any] = {}
    for place, argument in enumerate(func._schema.arguments):
        if place < len(args):
            value = args[place]
        elif argument.name in kwargs:
            value = kwargs[argument.name]
        else:
            value = argument.default_value if argument.has_default_value() else None
        if isinstance(value, plain):
            given[argument.name] = value
        elif type(value).__name__ == "dtype":
            given[argument.name] = str(value)
        elif isinstance(value, list | tuple) and all(isinstance(v, plain) for v in value):
            given[argument.name] = list(value)
    return given


def find_line() -> str:
    """File and line of the innermost frame that is the user's own."""
    theirs = (str(Path(torch.__file__).parent), __file__, "<")
    frame: Any = sys._getframe(2)
    while frame is not None:
        name = frame.f_code.co_filename
        if (
            not name.startswith(theirs)
            and "site-packages" not in name
            and "/lib/python" not in name
        ):
            return f"{'/'.join(Path(name).parts[-2:])}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


@contextlib.contextmanager
def following(
    module: Any, recorder: Any, outputs: dict[str, list[list[Any]]], wanted: Iterable[str] = ()
) -> Iterator[None]:
    """Tell the recorder which module runs. ``outputs``: path -> for each run the shapes of what the
    module gives; copies of it where the path is ``wanted``, as what follows may write into it."""
    copied = frozenset(wanted)
    handles = []

    def enter(path: str, *_: Any) -> None:
        recorder.scopes.append(path)

    def leave(path: str, _module: Any, _args: Any, out: Any) -> None:
        recorder.scopes.pop()
        kept = [t.detach().clone() if path in copied else tuple(t.shape) for t in leaves(out)]
        outputs.setdefault(path, []).append(kept)

    for path, part in module.named_modules():  # one that stands in several places once
        handles += [
            part.register_forward_pre_hook(functools.partial(enter, path)),
            part.register_forward_hook(functools.partial(leave, path)),
        ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def run_program(program: Any, call: tuple[Any, Any], recorder: Any) -> None:
    """The exported program, node by node, under the recorder."""

    class Runner(torch.fx.Interpreter):  # type: ignore[misc]
        def run_node(self, n: Any) -> Any:
            stack = n.meta.get("nn_module_stack") or {}
            recorder.scopes[-1] = list(stack.values())[-1][0] if stack else ""
            recorder.node = n.name
            result, last = super().run_node(n), recorder.last
            alone = isinstance(result, torch.Tensor)
            if alone and recorder.calls and recorder.calls[-1].node == n.name:
                same = last.numel() == result.numel() and last.dtype == result.dtype
                if same and torch.equal(last.reshape(result.shape), result):
                    recorder.calls[-1].given = tuple(result.shape)
            return result

    given = iter(leaves(call))
    feeds = []
    for spec in program.graph_signature.input_specs:
        kind = spec.kind.name
        if kind in ("PARAMETER", "BUFFER") and spec.target in program.state_dict:
            feeds.append(program.state_dict[spec.target])
        elif kind in ("BUFFER", "CONSTANT_TENSOR", "CUSTOM_OBJ"):
            feeds.append(program.constants[spec.target])
        elif kind == "USER_INPUT":
            constant = getattr(spec.arg, "value", None)
            feeds.append(constant if type(spec.arg).__name__ == "ConstantArgument" else next(given))
        else:
            feeds.append(None)
    with recorder, torch.no_grad():
        Runner(program.graph_module).run(*feeds)


def align(eager: Sequence[Call], exported: Sequence[Call]) -> dict[int, int]:
    """Place in the exported list -> place in the eager one, of what is the same operator in the same
    module with a result of the same shape. Of one node the last operator alone is its value."""
    matcher = difflib.SequenceMatcher(
        None, [c.key for c in eager], [c.key for c in exported], autojunk=False
    )
    return {b + i: a + i for a, b, size in matcher.get_matching_blocks() for i in range(size)}


def find_differences(
    eager: Sequence[Call], exported: Sequence[Call]
) -> dict[str, list[dict[str, str]]]:
    """Module path -> what eager PyTorch computes there and the exported program does not."""
    by_scope: dict[str, tuple[list[Call], list[Call]]] = {}
    for side, calls in enumerate((eager, exported)):
        for call in calls:
            by_scope.setdefault(call.scope, ([], []))[side].append(call)
    found: dict[str, list[dict[str, str]]] = {}
    for scope, (ours, theirs) in by_scope.items():
        matcher = difflib.SequenceMatcher(
            None, [c.op for c in ours], [c.op for c in theirs], autojunk=False
        )
        said: list[dict[str, str]] = []
        runs: list[dict[str, str]] = []
        for kind, a0, a1, b0, b1 in matcher.get_opcodes():
            if kind == "equal":
                for a, b in zip(ours[a0:a1], theirs[b0:b1], strict=True):
                    said += [
                        {
                            "line": a.line,
                            "said": f"{a.op}: {name} is {a.stated[name]!r} in PyTorch and {b.stated[name]!r} in the export",
                        }
                        for name in a.stated
                        if name in b.stated and a.stated[name] != b.stated[name]
                    ]
                continue
            line = ours[a0].line if a0 < a1 else ours[a0 - 1].line if a0 else ""
            runs.append(
                {
                    "line": line,
                    "said": f"PyTorch runs {list_ops(ours[a0:a1])}, the export {list_ops(theirs[b0:b1])}",
                }
            )
        if said or runs:  # an argument that differs tells more than operators that do
            found[scope] = [*said, *runs][:SAID]
    return found


def list_ops(calls: Sequence[Call]) -> str:
    """Names of operators with the numbers that they are given, few of them."""

    def state(call: Call) -> str:
        numbers = {
            k: v
            for k, v in call.stated.items()
            if isinstance(v, int | float) and not isinstance(v, bool)
        }
        shown = ", ".join(f"{k}={v:g}" for k, v in list(numbers.items())[:2])
        return f"{call.op}({shown})" if shown else call.op

    return (
        ", ".join(map(state, calls[:5])) + (", ..." if len(calls) > 5 else "")
        if calls
        else "nothing"
    )


def find_attributes(model: Any, nodes: Mapping[str, Call]) -> dict[str, list[dict[str, str]]]:
    """Module path -> attributes of ONNX nodes that are not what the operator was given."""
    found: dict[str, list[dict[str, str]]] = {}
    for node in model.graph:
        call = nodes.get(node.outputs[0].name or "") if node.outputs else None
        if call is None:
            continue
        for (op, attribute), argument in ATTRIBUTES.items():
            if (
                node.op_type != op
                or argument not in call.stated
                or attribute not in node.attributes
            ):
                continue
            value, given = node.attributes[attribute].value, call.stated[argument]
            if op == "Resize":
                same = (value == "align_corners") == bool(given)
            elif isinstance(given, float):
                same = abs(value - given) <= 1e-6 * abs(given)
            else:
                same = value == given or op.endswith("oftmax")
            if not same:
                found.setdefault(call.scope, []).append(
                    {
                        "line": "",
                        "said": f"{op}: {attribute} is {value!r} in the ONNX model and {argument} is {given!r} in PyTorch",
                    }
                )
    return found


# -- pairs


def pair_program(
    program: Any, outputs: Mapping[str, list[list[Any]]]
) -> dict[str, tuple[str, int]]:
    """Node of the exported program -> (module path, which of its outputs): the values that leave the
    scope of a module that ran once, where they are as many and of the same shapes as its outputs.
    The ONNX model may hold one as a constant."""
    inside: dict[str, list[Any]] = {}
    for node in program.graph.nodes:
        for path, _ in (node.meta.get("nn_module_stack") or {}).values():
            inside.setdefault(path, []).append(node)
    pairs: dict[str, tuple[str, int]] = {}
    for path, runs in outputs.items():
        members = set(inside.get(path, ()))
        if len(runs) != 1 or not members or not path:
            continue
        left = [n for n in inside[path] if any(user not in members for user in n.users)]
        shapes = [
            tuple(n.meta["val"].shape) if hasattr(n.meta.get("val"), "shape") else None
            for n in left
        ]
        if shapes == runs[0]:
            pairs |= {n.name: (path, place) for place, n in enumerate(left)}
    return pairs


def compare_constants(
    model: Any, given: Mapping[str, list[list[Any]]], by_module: Mapping[str, tuple[str, int]]
) -> dict[str, dict[str, str]]:
    """Name of a constant that the exporter has computed -> the module that gives it in eager PyTorch,
    where that is another value. ``given``: module path -> what it gave; ``by_module``: as
    ``pair_program`` pairs."""
    found: dict[str, dict[str, str]] = {}
    for value in model.graph.initializers.values():
        if value.const_value is None or value.name not in by_module:
            continue
        path, place = by_module[value.name]
        ours = given[path][0][place].double()
        theirs = torch.from_numpy(value.const_value.numpy().copy()).double()
        if ours.shape == theirs.shape:
            error = float((ours - theirs).norm() / ours.norm().clamp_min(1e-30))
            if error > CONSTANT:
                found[value.name] = {
                    "module": path,
                    "said": f"the constant {value.name} is {error:.2g} off what PyTorch computes",
                }
    return found


def shape_of(value: Any) -> tuple[int, ...] | None:
    """The fixed shape of an ONNX value; None where it is not fixed or not known."""
    fixed = value.shape is not None and all(isinstance(d, int) for d in value.shape)
    return tuple(value.shape) if fixed else None


# -- the whole


def export(request: Mapping[str, Any]) -> dict[str, Any]:
    """Do what was asked; what is told of it. Raises Fault."""
    if MISSING:
        raise Fault(f"This interpreter has no torch that works ({MISSING}).")
    out = Path(request["out"])
    module, given, options = open_module(load_source(request["source"]))
    was_training, name = False, Path(request["source"]).stem
    if not request["source"].endswith(".pt2"):
        was_training, name = module.training, type(module).__name__
        module.eval()
    samples = [read_inputs(path, module, given) for path in request.get("inputs", ())]
    if not samples:
        if given is None:
            takes = ", ".join(inspect.signature(module.forward).parameters)
            raise Fault(
                f"No example inputs are known: give --inputs FILE with {takes}, or let the function return (module, inputs)."
            )
        samples = [as_call(given)]
    args, kwargs = samples[0]
    with torch.no_grad():
        golden = [leaves(module(*a, **k)) for a, k in samples]
        first, outputs = Recorder(lines=True), dict[str, list[list[Any]]]()
        with following(module, first, outputs), first:
            again = leaves(module(*args, **kwargs))
    steady = len(again) == len(golden[0]) and all(
        torch.equal(a, b) for a, b in zip(again, golden[0], strict=True)
    )
    fed = {**{str(place): value for place, value in enumerate(args)}, **kwargs}
    own = not request.get("inputs") and (args is given or isinstance(given, dict))
    said = {
        "torch": torch.__version__,
        "module": type(module).__name__,
        "training": was_training,
        "steady": steady,
        "samples": len(samples),
        "example": {} if own else {n: (str(t.dtype)[6:], list(t.shape)) for n, t in fed.items()},
        "precision": next((p for name, p in PRECISIONS.items() if name in first.types), "fp32"),
    }
    with contextlib.redirect_stdout(sys.stderr):
        program = torch.onnx.export(
            module, args, dynamo=True, verbose=False, **{"kwargs": kwargs, **options}
        )
    model = program.model
    size = sum(
        weight.const_value.nbytes
        for weight in model.graph.initializers.values()
        if weight.const_value is not None
    )
    program.save(str(out / f"{name}.onnx"), external_data=size > 1 << 30)
    if request["program"]:
        torch.export.save(program.exported_program, out / "program.pt2")
    inner, differences = dict[str, Any](), dict[str, list[dict[str, str]]]()
    folded = dict[str, dict[str, str]]()
    try:
        by_module = pair_program(program.exported_program, outputs)
        inner, differences, folded = record_inner(
            module, (args, kwargs), program, first.calls, by_module, request["bytes"]
        )
    except (
        Exception
    ) as error:  # what cannot be paired is left out: the outputs are there all the same
        said["unpaired"] = f"{type(error).__name__}: {error}"[:300]
    names = [value.name for value in model.graph.inputs]
    finals = [value.name for value in model.graph.outputs]
    for number, (call, outs) in enumerate(zip(samples, golden, strict=True)):
        feeds = leaves(call)
        if len(feeds) != len(names) or len(outs) != len(finals):
            raise Fault(
                f"The export takes {len(names)} tensors and gives {len(finals)}; the module takes "
                f"{len(feeds)} and gives {len(outs)}."
            )
        np.savez(
            out / f"inputs-{number}.npz",
            **{n: as_array(t) for n, t in zip(names, feeds, strict=True)},
        )
        given = {n: as_array(t) for n, t in zip(finals, outs, strict=True)}
        np.savez(out / f"golden-{number}.npz", **({} if number else inner) | given)
    return {
        **said,
        "pairs": len(inner),
        "outputs": finals,
        "inputs": names,
        "differences": differences,
        "constants": folded,
        "modules": sum(1 for _ in module.modules()),
    }


def record_inner(
    module: Any,
    call: Any,
    program: Any,
    calls: Sequence[Call],
    by_module: Mapping[str, tuple[str, int]],
    most: int,
) -> tuple[dict[str, Any], dict[str, list[dict[str, str]]], dict[str, dict[str, str]]]:
    """(inner values of eager PyTorch by ONNX tensor, what differs by module, constants that do)."""
    theirs = Recorder()
    run_program(program.exported_program, call, theirs)
    same = align(calls, theirs.calls)
    last = {c.node: place for place, c in enumerate(theirs.calls)}
    tensors = {v.name: v for node in program.model.graph for v in node.outputs if v.name}
    sizes = {name: 4 * math.prod(shape_of(v) or ()) for name, v in tensors.items()}  # bytes
    room, chosen = most, dict[str, int]()
    # Modules first, the outermost at the beginning: where there is room for few, these bound the rest.
    placed: dict[str, tuple[str, int]] = {}
    inside = {n: p for n, p in by_module.items() if n in tensors}
    for name, (path, place) in sorted(inside.items(), key=lambda item: item[1][0].count(".")):
        room -= sizes[name]
        if room < 0:
            break
        placed[name] = path, place
    for node, place in last.items():
        known = node in tensors and node not in placed and place in same
        made = theirs.calls[place]
        if not known or shape_of(tensors[node]) not in (made.shape, made.given):
            continue
        room -= sizes[node]
        if room < 0:
            break
        chosen[node] = same[place]
    kept, given = Recorder(chosen.values()), dict[str, list[list[Any]]]()
    constants = by_module.keys() & program.model.graph.initializers.keys()
    wanted = {path for path, _ in (*placed.values(), *map(by_module.__getitem__, constants))}
    with following(module, kept, given, wanted), torch.no_grad(), kept:
        module(*call[0], **call[1])
    values = {name: as_array(given[path][0][place]) for name, (path, place) in placed.items()}
    if [c.key for c in kept.calls] == [c.key for c in calls]:
        values |= {
            name: as_array(kept.values[place]).reshape(shape_of(tensors[name]))
            for name, place in chosen.items()
            if place in kept.values
        }
    differences = find_differences(calls, theirs.calls)
    for scope, said in find_attributes(
        program.model, {n: theirs.calls[p] for n, p in last.items()}
    ).items():
        differences[scope] = (said + differences.get(scope, []))[:SAID]
    return values, differences, compare_constants(program.model, given, by_module)


def as_array(tensor: Any) -> Any:
    """A tensor as numpy has it; bfloat16, which numpy lacks, as float32, which holds the same
    values."""
    plain = tensor.detach().cpu()
    return (plain.float() if plain.dtype == torch.bfloat16 else plain).numpy()


def blame(error: BaseException, source: str) -> str:
    """Where it stopped, in the user's file where it was there, and what it said."""
    path = source.rpartition(":")[0]
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == path]
    where = f", line {lines[-1]}," if lines else ""
    text = " ".join(str(error).split())[:400]
    return f"'{Path(path or source).name}'{where} stopped with {type(error).__name__}: {text or 'no message'}"


def main(path: str) -> int:
    request = json.loads(Path(path).read_text(encoding="utf-8"))
    try:
        warnings.simplefilter("ignore")
        result = export(request)
    except Fault as fault:
        result = {"fault": str(fault)}
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        result = {"fault": blame(error, request["source"])}
    (Path(request["out"]) / "export.json").write_text(
        json.dumps(result, indent=1), encoding="utf-8"
    )
    return 1 if "fault" in result else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
