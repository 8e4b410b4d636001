"""The language in which an engine is declared: what is known of it with nothing native loaded.
Plain data and pure functions."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal

import msgspec

from narrowdown.engines.spec import EngineSpec

WORD = r"[-\w.:+,() ]*"  # ``harmless`` of what names a device, a kind of kernel, ...: no path
NAMES = (
    r"[^\x00-\x1f]*"  # of names of tensors and nodes, and what is said of them: nothing opens them
)


class Option(msgspec.Struct, frozen=True):
    """One key of an engine spec. ``type``: what a value must be; ``choices`` empty = free;
    ``least`` and ``most`` bound numbers. ``file`` is the path of one file that is read, ``library``
    a list of paths that the engine loads: both are asked about before they are opened
    (``engines.options.loaded``, ``engines.data.held``), and ``what`` says what such a file is.
    ``command`` is a command line that the engine starts, asked about in the same way
    (``engines.options.commands``); ``holes``: placeholders that must stand in it. ``harmless``: of
    free text, and of each text in a list, a regular expression: what it matches whole can do no
    more than change what is computed. All other text is asked about, too
    (``engines.options.settings``). ``default`` None: it follows from the other options, as ``help``
    says. ``plain``: the value that leaves the engine the least freedom, where any other one may be
    what breaks a model; types and shapes are not such a choice. ``twin``: of a number, a lower
    value at which the engine builds several times faster and mostly fails in the same way
    (``engines.asking.engine_forms``). ``ordered``: the value at which the precision is an order, others
    being permissions (``engines.switches``). ``exact``: the value at which FP32 is computed
    as FP32, and no less. ``firm``: a value at which an engine that was right in a wider precision than
    its own may be wrong: it is asked with it before one says that it does not fail here."""

    name: str
    type: Literal["str", "int", "float", "bool", "list", "file", "library", "command"] = "str"
    default: Any = None
    help: str = ""
    choices: tuple[str, ...] = ()
    least: int | float | None = None
    most: int | float | None = None
    plain: str = ""
    twin: str = ""
    ordered: str = ""
    exact: str = ""
    firm: str = ""
    what: str = ""
    holes: tuple[str, ...] = ()
    harmless: str = ""

    @property
    def usual(self) -> str:
        """The default as a spec writes it; "" where it follows from other options."""
        return "" if self.default is None else str(self.default).lower()


class Found(msgspec.Struct, frozen=True):
    """An engine as it was when a fault was found: its spec, every option with its typed value, its
    version ("": not known)."""

    spec: EngineSpec
    chosen: Mapping[str, Any]
    version: str = ""


class CheckPart(msgspec.Struct, frozen=True):
    """What a case's ``check.py`` takes to run the engine where there is no Narrowdown.

    ``source``: Python that defines ``start()``, which builds the engine from the file ``HERE /
    MODEL`` and returns ``(run, name)``: ``run(feeds)`` takes arrays by input name and gives arrays
    by output name, ``name`` says engine and version. Where ``KIND`` is ``"build"`` it need not run.
    What the engine refuses is any exception, what is lacking here an ``OSError`` or
    ``ImportError``. It may use ``HERE`` (the case's folder), ``MODEL``, ``SETTINGS``, ``KIND``,
    ``np``, ``sys``, ``Path`` and ``cannot_tell(why)``, ``beside(name)`` (the path of a file of the
    user's that was put beside the case), and whatever it imports itself; Python 3.8 must read it.

    ``settings``: ``SETTINGS``, plain literals. ``model``: which file: ``engine.onnx``, what the
    engine really built, casts and all, or ``model.onnx``, the part of the user's model.
    """

    source: str
    settings: Mapping[str, Any] = {}
    model: str = "engine.onnx"


class CaseCommand(msgspec.Struct, frozen=True):
    """What a command on a case says, whatever the tool. ``compare``: Polygraphy's words for inputs,
    expected values and tolerances, quoted for the shell; ``inputs``: names of the case's inputs;
    ``part``: what check.py takes."""

    compare: str
    inputs: tuple[str, ...]
    part: CheckPart


class Program(msgspec.Struct, frozen=True):
    """The PyTorch program that a model was exported from, as the user named it. ``example``: as
    ``Exported`` has it; ``modules``: paths of the modules in it that hold all nodes that stay in
    FP32, none inside of another; ``ends``: the names of what the model takes, and of what it gives."""

    source: str
    example: dict[str, tuple[str, tuple[int, ...]]]
    modules: tuple[str, ...]
    ends: tuple[str, ...]


class Cure(msgspec.Struct, frozen=True):
    """A workaround, for the words of other tools. ``keep``: names of the nodes that stay in FP32;
    ``nameless``: how many of them are ours, as the model gives none; ``failing``: the engine that
    fails, so that the options that it has otherwise are what cures
    (``engines.options.tell_apart``); ``file``: the model with the workaround in it, "" where there
    is none. ``outputs``: all that shall be outputs of the model as it was given, so that layers are
    not joined across them. ``plain``: the file has the types of the model as it was given, whatever
    the engine makes of them. ``in_float``: ``keep`` are layers of a quantized model that are left in
    float, so their pairs are gone from the file: no precision of a layer by its name does that.
    ``quantized``: how that model was quantized, as arguments of
    ``onnxruntime.quantization.quantize_static``, where that is known; ``left_out``: what was left
    in float before; ``floats``: the type of the first of ``keep``, by numpy's
    name. ``program``: where these nodes stand in PyTorch, if they all stand in modules below the
    outermost one."""

    keep: tuple[str, ...] = ()
    nameless: int = 0
    failing: Found | None = None
    file: str = ""
    outputs: tuple[str, ...] = ()
    plain: bool = False
    in_float: bool = False
    quantized: str = ""
    left_out: tuple[str, ...] = ()
    floats: str = "float32"
    program: Program | None = None


class Recipe(msgspec.Struct, frozen=True):
    """How one tool is told of a workaround: text to paste."""

    tool: str  # and what it takes
    language: Literal["sh", "python", "cpp"]
    text: str
    line: str = ""  # the line that makes the difference; "" for the last one


class ByHand(msgspec.Struct, frozen=True):
    """The engine through other tools; each value is quoted for the shell.

    ``lines``: shell lines that show a case. ``flags``: what makes a tool compute in the engine's
    types, for Polygraphy and for trtexec; without it ``--PRECISION``. ``fitted``: a command of a
    flow as the engine needs it. ``stands_for``: tool -> the version of it that the engine is like,
    for commands that are for some versions alone. ``without``: tools that do not have the engine.
    ``keep_script``: the script with which Polygraphy keeps these nodes in FP32, "" where it cannot.
    ``apply``: a workaround in the words of the engine's own tools and interfaces.
    """

    lines: Callable[[Found, CaseCommand], list[str]] | None = None
    flags: Callable[[Found], tuple[list[str], list[str]]] | None = None
    fitted: Callable[[Found, str], str] | None = None
    stands_for: Mapping[str, str] = {}
    without: tuple[str, ...] = ()
    keep_script: Callable[[Found, Collection[str]], str] | None = None
    apply: Callable[[Found, Cure], list[Recipe]] | None = None


class Tracker(msgspec.Struct, frozen=True):
    """Where an engine's faults are reported, and the fields of its template, in its order:
    (heading, what goes below it). A heading with ``#`` has its text below it, any other beside it.
    What may go there: ``wizard.bundle.issue.fill``."""

    url: str = ""
    fields: tuple[tuple[str, str], ...] = (
        ("## Description", "description"), ("## Expected", "expected"), ("## Actual", "actual"), ("Version", "version"),
        ("Device", "device"), ("Options", "options"), ("Operating system", "system"), ("Python", "python"),
        ("## Steps to reproduce", "steps"), ("## Files", "model"),
    )  # fmt: skip


TRACKER = Tracker()  # of an engine that declares none


class Declaration(msgspec.Struct, frozen=True):
    """An engine as the command line knows it.

    ``module`` holds ``make(spec) -> Engine`` and is imported in a worker alone. ``package`` is the
    import name that it needs, ``install`` the command that brings it. ``hidden``: for tests, never
    suggested or listed. ``needs``: what it takes beside the package, one sentence. ``refusal``: why
    it cannot be an engine, where it cannot.

    ``under_test``: options and values that hold where it is the engine under test, unless they are
    given; not of a reference. ``family``: whose code computes, where it is another engine's too;
    engines of one family may be wrong alike, so none is asked about another. ``guests``: (option,
    value, family) where a value brings in the code of a further family. ``lists``: for options of
    type ``list``, by name, what makes a value canonical; raises ``ValueError`` with a sentence.
    ``emulation``: it stands for engines of a precision and is none that anybody deploys, so a model
    mended for it is of no use. ``required``: options that a spec must give. ``bare``: the option
    that ``NAME:VALUE`` sets. ``recorded``: it computes nothing and gives what was recorded, so that
    it is a reference and never the engine under test. ``original``: it computes the program that the
    model was exported from, so where it differs the export may be what is wrong. ``deployed``: what models of a machine with a
    GPU are deployed on, so that it is asked there where no engine is named. ``tracker``: where its
    faults are reported. ``formats``: ending of files that hold models in its own format, which it
    alone runs, whole -> its spec that computes such a model at its plainest, to hold others
    against. ``weighs``: bytes that a release of its package takes on disk, about; what installs one
    says so before. ``title``: its name as people write it. ``check_part``: what check.py takes to
    run it, which cannot tell without it.
    """

    name: str
    summary: str
    module: str
    options: tuple[Option, ...] = ()
    package: str = ""
    install: str = ""
    needs: str = ""
    hidden: bool = False
    refusal: str = ""
    under_test: tuple[tuple[str, str], ...] = ()
    family: str = ""
    guests: tuple[tuple[str, str, str], ...] = ()
    lists: Mapping[str, Callable[[tuple[str, ...]], tuple[str, ...]]] = {}
    emulation: bool = False
    required: tuple[str, ...] = ()
    bare: str = ""
    recorded: bool = False
    original: bool = False
    title: str = ""
    formats: Mapping[str, str] = {}
    weighs: int = 200 << 20
    deployed: bool = False
    tracker: Tracker | None = None
    check_part: Callable[[Found], CheckPart] | None = None
    by_hand: ByHand = ByHand()


# What a model was before it was converted; ``engines.data.originals`` does it, whatever the engine.
QUANTIZATION = (
    Option(
        "quantization", "str", "as-is", "bypass: the model without its QuantizeLinear/DequantizeLinear pairs.",
        ("as-is", "bypass"),
    ),
    Option(
        "model", "file", "", "The model that this one was made of (FP16, AutoCast, Q/DQ): its values at the places of this one.",
        what="float original",
    ),
)  # fmt: skip
