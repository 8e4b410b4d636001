"""Probes and measurements: the questions that steps ask and the answers that workers give.

A probe is idempotent and symbolic: it names digests, node ids and sample ids, never bytes. Its
measurement holds every metric, so that a new tolerance needs no new run. Both are frozen and travel
as JSON.

Id sets are written as ranges (``engines.graph.ranges``): ``"0-3,7"``; ``"*"`` is everything.

Sample ids: ``"real:0"`` is the first feed of the user's inputs, ``"random:0"`` the made-up one
(``MADE_UP``). Where rows are independent (dimension 0 of every input and output is the same batch),
``"real:0/5"`` is row 5 alone: as a *request* it feeds that row only (batch 1), as a *result* it
scores that row. Requesting ``"real:0"`` feeds the whole batch and returns one result per row where
rows exist, else one result ``"real:0"``.

Where outputs go back into inputs, a feed is a sequence: ``"real:0"`` is all of its steps in turn,
one result, each score the worst of any step; ``"real:0/step5"`` one step alone, fed the state that
the reference has there. What asks of a part has the last step for ``"real:0"``.
"""

import hashlib
from collections.abc import Container
from typing import Any, Literal, TypeAlias

import msgspec

from narrowdown.engines.spec import unswitched

FORMAT = 1
# JSON holds no infinity: a ratio without bound is written HUGE, the SQNR of equal tensors
# SILENT_DB.
HUGE = 1e300
SILENT_DB = 999.0
GIVEN = "real:"  # what the ids of the user's own samples begin with
MADE_UP = "random:0"
ALL_HELD = ("*",)  # every carried input of a loop is fed the reference's values
STEP = "step"  # a step of a sequence that is fed alone: ``real:0/step17``
BARRIER = "barrier"  # the rewrite that changes no node: inner tensors become outputs
WRAPS = (
    "wrap-reshape",
    "wrap-max",
)  # those that put nodes behind inner tensors which hand on what they are given
FIXED_SIZES = "fixed-sizes"  # the rewrite that changes no node: inputs have the sizes that are fed
APART = (
    BARRIER,
    *WRAPS,
)  # rewrites about tensors, so that an engine does not join layers across them


class Edit(msgspec.Struct, frozen=True, omit_defaults=True):
    """One shrink of a cut model (reduce's last passes). With edits, expected values are made by
    running the reference on the edited cut itself.

    kinds: ``fill`` (tensor: a fed input or weight becomes the constant ``value`` everywhere, same
    shape and dtype), ``keep-rows`` (tensor: a fed input or weight keeps ``value`` of its rows in
    dimension ``axis``, from ``start`` on), ``drop-attribute`` (node, attribute).
    """

    kind: Literal["fill", "keep-rows", "drop-attribute"]
    tensor: int = -1
    node: int = -1
    attribute: str = ""
    axis: int = 0
    value: float = 0.0
    start: int = 0


class Candidate(msgspec.Struct, frozen=True, omit_defaults=True):
    """A symbolic part of the model; a worker cuts it.

    ``nodes``    node ids. Tensors that they read and do not make are fed with captured reference
    values. ``outputs``  tensor ids that are judged, all made by ``nodes``; ``""``: the model's own
    outputs made by them, or, if they
                 make none, their boundary outputs.
    ``severed``  tensors made inside ``nodes`` whose readers get the captured reference value
    instead (a culprit patched
                 with reference values; a node alone among others). The producer still runs; drop it
                 by leaving it out.
    ``constants`` fed tensors that are baked in as initializers. None: the default rule (the
    ``shape_like`` ones of the index).
    """

    nodes: str = "*"
    outputs: str = ""
    severed: str = ""
    constants: str | None = None
    edits: tuple[Edit, ...] = ()


class Probe(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="op", kw_only=True):
    """Base of all probes. ``exclusive``: nothing else of the session runs on its GPU meanwhile, or
    on its machine where its engine takes no GPU; it runs ahead where another of these is free.
    ``attempt`` counts repetitions that a step asked for: another attempt is another question."""

    attempt: int = 0
    exclusive: bool = False


class Inspect(Probe, frozen=True, tag="inspect"):
    """What is this engine, here? -> facts: the ``EngineInfo`` as plain data (version, device,
    fingerprint, capabilities)."""

    engine: str


class Import(Probe, frozen=True, tag="import"):
    """Take a model file into the session: lift Constant nodes to weights, split weights off. ->
    facts: model digest, nodes, notes, names of its ``outputs``, ``bodies`` (If, Loop and Scan
    nodes), ``random`` (nodes that draw numbers), ``warnings`` that its owner must be told, what a
    file beside it says of a decoder (``engines.data.generation``). ``path``
    is absolute; ``digest`` the sha256 of the file (with its external data) when it was opened.

    ``text``: what writes the file ``path``, run by the Python of the ``program``, an engine spec, beside
    the script that it names. -> facts: model digest."""

    path: str
    digest: str
    program: str = ""
    text: str = ""


class Describe(Probe, frozen=True, tag="describe"):
    """The graph index of a stored model -> artifacts["index"], a GraphIndex as JSON. With
    ``sample``, shapes and dtypes are those seen in the reference run of that sample (which also
    fills the captures, within budget)."""

    model: str
    sample: str = ""
    inputs: str = ""
    reference: str = ""


class Sanitize(Probe, frozen=True, tag="sanitize"):
    """Fold constants, clean up, infer shapes. -> facts: model digest, nodes_before, nodes_after,
    notes."""

    model: str


class Unroll(Probe, frozen=True, tag="unroll", kw_only=True):
    """Put plain nodes in the place of If, Loop and Scan: the branch that ``sample`` takes in the
    reference run, the iterations that it runs, bodies in bodies too. -> facts: ``model`` digest,
    ``nodes``, ``opened`` (node, op, how: the branch, or how many iterations; by: what decides that;
    while: what it rests on), ``samples`` (those that run in the same way), ``kept`` (a sentence for
    each that stays). ``base``: the inputs' digest that ``sample`` is of, where the ``samples`` are
    of others."""

    model: str
    inputs: str
    samples: tuple[str, ...]
    sample: str
    reference: str
    base: str = ""


class Requantize(Probe, frozen=True, tag="requantize", kw_only=True):
    """Quantize the float original, which ``reference`` names, anew, as this model is and with what
    ``trial`` changes (``engines.graph.quantized.TRIALS``), without the nodes ``left_out``, calibrated
    on ``samples``. -> facts: ``model`` digest."""

    model: str
    inputs: str
    samples: tuple[str, ...]
    reference: str
    trial: str
    left_out: tuple[str, ...] = ()


class LoadInputs(Probe, frozen=True, tag="load-inputs"):
    """Make the session's inputs from what the user gave and random data by role. -> facts:
    ``inputs`` digest, ``samples`` (list of SampleInfo), ``batched`` (those whose scores are split
    by rows), ``guesses``, ``warnings``. Refused (status ``refused``) with a sentence where they do
    not fit. ``folder``: the user's folder, where data loader scripts run.

    ``near``: that many more feeds near those of ``base``, the digest of inputs that were made
    before, and nothing else: ``near:START`` and so on, for which a workaround was not made.
    ``sources`` are then scripts alone: what they give when asked once more, and did not give
    before, comes first. Where ``base`` has random feeds only, they are drawn by role.

    ``carry`` and ``carry_token``: outputs that go back into inputs (``engines.data.sequences``).
    Each feed is then a sequence of ``steps`` (0: as long as its inputs), whose states are those of
    the ``reference``; ``own_tokens``: an engine is fed the tokens that it chose. facts["suggested"]:
    the options to give where names and shapes suggest such pairs and none are given; those that a
    file beside the model ``suggested`` come first. ``cache``: heads of one, and their size."""

    model: str
    sources: tuple[str, ...] = ()  # absolute paths, "path.py:func" for scripts
    source_digests: tuple[str, ...] = ()
    seed: int = 1
    shapes: dict[str, tuple[int, ...]] = {}
    ranges: dict[str, tuple[int | float, int | float]] = {}  # "" is the default range
    random: bool = True  # also make one random-by-role feed
    batch: bool = True  # dimension 0 may be a batch; False: it was seen not to be one
    cautious: bool = False  # guess no roles: integers are 0 or 1, floats lie from 0 to 1
    folder: str = ""
    base: str = ""
    near: int = 0
    start: int = 0
    carry: tuple[str, ...] = ()
    carry_token: tuple[str, ...] = ()
    steps: int = 0
    own_tokens: bool = False
    reference: str = ""
    suggested: tuple[tuple[str, str], ...] = ()
    cache: tuple[int, ...] = ()


class Measure(Probe, frozen=True, tag="measure"):
    """Build a candidate on an engine, run it on samples, compare with the captured reference of the
    whole model.

    ``keep``    node ids kept in higher precision (FP32); the engine says how (casts, layer
    precisions). ``righted`` node ids that the reference computes, in that very run, from what the
    engine gives them: what the engine got wrong
                before them stays in what they hand on. No engine needs to be able to do anything
                for it.
    ``marks``   tensor ids observed beside the outputs; compared, not judged. A cut tensor is scored
    as it was fed. Where the
                reference is held against itself they are what was captured: nothing is run for
                them.
                Of a part: facts["weights"], the largest magnitude of each float weight that it
                reads, and facts["least"], the
                smallest that is not 0.
    ``effect``  also transplant the engine's output values into the reference run of the whole model
    and score O.
                ``effect_on``: tensor ids of O ("" = all the model's outputs).
    ``runs``    runs of the one build; each run's scores are kept. 0: the candidate is built and not
    run, so that no engine but
                the builder is needed; there are no results then.
    ``feed``    cut tensors as the engine would have stored them (rounded to its storage precision)
    or exactly. ``engine``  an engine spec (``emulate:precision=fp16``). ``reference`` likewise;
    ``inputs`` is the inputs' digest. ``record``  -> facts["build"]: what the build chose,
    ``choices`` by layer where the engine shows them (tactics). ``force``   choices (as recorded)
    that this build must make, by layer; ``forbid``: those that it may not make. What could not
                be followed is listed in facts["build"]["refused"].
    ``nudge``   ``inputs`` or ``weights``: each float of them moved by one unit in the last place,
    another draw in each run; what
                they are held against is not moved.
    ``vary``    the same samples in another way (``engines.workers.variation``), scored against the
    engine's own answer to them as
                they are: no reference is run. facts["follows"]: of ``stale``, whether the answer
                follows what was in memory.
                ``unsupported`` where the samples cannot be fed so.
    ``written`` digest of a stored model, this one, the one that it was made from or one that was
    made of it, into which
                ``keep`` is written as a plain file that is read back and run in place of the
                candidate: ``rest`` is the
                precision (``fp16``, ``bf16``) of all other nodes, "" leaves their types.
                facts["written"]: ``names`` of its kept
                nodes, where some lie in bodies ``holders``: those of its graph that are or hold
                them, ``lost``: nodes of this
                model that it does not have, ``inside``: nodes in the bodies of what is kept,
                ``idle``: nodes of bodies that did
                not run and are kept, ``of``: nodes of it with all bodies'; with ``save`` the file
                is the artifact
                ``worked-around.onnx``.
    ``rewrite`` a name of ``engines.graph.rewrites``: the whole model with that done runs in place
    of the candidate, its outputs
                held against the model as it is. ``rewrite_at``: node ids that it is about.
                facts["rewritten"]: names of the nodes
                that it changed; of ``APART`` both are about tensors. With ``save`` the model as it
                was built is the artifact ``engine.onnx``.
    ``save``    keep what was built (model.onnx, engine.onnx, inputs, expected, actual) under this
    name: artifacts; of ``good``
                model.onnx alone.
    ``postprocess`` what is done to the model's own outputs before they are scored (the whole model,
    and ``effect``): one
                ``SCRIPT.py[:FUNCTION]``, whose digest is ``postprocess_digest`` and which runs in
                ``folder``, or several
                ``[OUTPUT:]top-K[,axis=A]``. A script that fails is ``refused``, with
                facts["script"].
    ``held``    inputs of a sequence that are fed the reference's values in each step, though they
    are carried. ``curve``   also
                facts["curve"]: sequence -> the results of each of its steps.
    ``score``   how good the user counts the whole model's own outputs, before any ``postprocess``:
    ``SCRIPT.py[:FUNCTION]``, or a
                file of labels, whose digest is ``score_digest``. -> facts["scores"]: sample -> [the
                engine's, the reference's],
                None where it is no finite number.
    """

    model: str
    inputs: str
    samples: tuple[str, ...]
    engine: str
    reference: str
    candidate: Candidate = Candidate()
    keep: str = ""
    righted: str = ""
    marks: str = ""
    effect: bool = False
    effect_on: str = ""
    runs: int = 1
    feed: Literal["stored", "exact"] = "stored"
    record: bool = False
    force: dict[str, str] = {}
    forbid: dict[str, tuple[str, ...]] = {}
    nudge: Literal["", "inputs", "weights"] = ""
    vary: Literal["", "permuted", "twice", "alone", "repeated", "stale"] = ""
    written: str = ""
    rewrite: str = ""
    rewrite_at: str = "*"
    rest: Literal["", "fp16", "bf16"] = ""
    save: str = ""
    timeout: float = 0.0  # seconds; 0: the pool's rule
    postprocess: tuple[str, ...] = ()
    postprocess_digest: str = ""
    folder: str = ""
    score: str = ""
    score_digest: str = ""
    held: tuple[str, ...] = ()
    curve: bool = False


class Recall(Probe, frozen=True, tag="recall", kw_only=True):
    """What the table of known bugs holds for an engine (by its name alone) and operators like
    these. -> facts: ``bugs``, each an ``engines.known.entry.Bug``: those whose pattern has no other
    operators."""

    family: str
    ops: tuple[str, ...]


class Construct(Probe, frozen=True, tag="construct"):
    """Make a small model by its declaration, an ``engines.known.entry.Construction`` as JSON. ->
    facts: ``model`` digest; with ``feed`` also ``inputs``, the digest of feeds that are drawn as it
    says, and ``samples``, their names."""

    declared: str
    feed: bool = False
    seed: int = 1


class State(Probe, frozen=True, tag="state", kw_only=True):
    """State a part of a stored model as a declaration. -> facts: ``declared``, an
    ``engines.known.entry.Construction``; ``sizes``: which numbers of it can be changed together
    (each a list of ``engines.known.varied.Place``); ``names``: what its short names stand for. What
    holds values up to ``engines.workers.stating.STATED`` has them in it, the rest their range.
    Refused (status ``refused``) where it holds what a declaration cannot say."""

    model: str
    inputs: str
    sample: str
    reference: str
    candidate: Candidate = Candidate()


class Check(Probe, frozen=True, tag="check"):
    """Ask an external checker about a candidate: split by shell rules, no shell, a fresh folder.
    ``{model}``, ``{inputs}``, ``{expected}``, ``{dir}`` are replaced. -> facts: returncode or
    signal, stdout and stderr (``left_out``: bytes missing from their middles), output artifact.

    ``folder``     the user's folder, whose entries the checker finds in its own as links.
    ``artifacts``  files of the checker's folder that are kept, by name. ``control``    in place of
    the candidate, a model of the same inputs that no checker may find fault with: ``identity``
    hands
                   them on, ``answers`` gives the reference's own outputs.
    """

    model: str
    command: str
    candidate: Candidate = Candidate()
    inputs: str = ""
    sample: str = ""
    reference: str = ""
    timeout: float = 0.0
    folder: str = ""
    artifacts: tuple[str, ...] = ()
    control: Literal["", "identity", "answers"] = ""


AnyProbe: TypeAlias = (
    Inspect
    | Import
    | Describe
    | Sanitize
    | Unroll
    | Requantize
    | LoadInputs
    | Recall
    | Construct
    | State
    | Measure
    | Check
)


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """A model's own output as people ask about it (``engines.compare.answers``). ``least``,
    ``most`` and ``mean`` of what the engine gives, ``expected_...`` of the reference; HUGE where
    they are not finite. ``worst_at``: where the two are furthest apart, ``worst`` and
    ``expected_worst`` the values there. ``psnr_db``: the reference's range over the root mean
    square error.

    Of class scores (the last axis): ``rows`` of them (0: it holds none), the share ``top1`` of rows
    whose largest score is another one, ``margin`` by how much the reference prefers its own there at
    most (HUGE of rows that are not finite), ``top5`` the mean share of the reference's five largest that
    is not among the engine's, ``kl`` the mean divergence of the engine's distribution from the
    reference's in nats, ``perplexity`` and ``expected_perplexity`` of the reference's own choice in
    each. ``iou``: mean intersection over union of masks or boxes, None of anything else."""

    least: float = 0.0
    most: float = 0.0
    mean: float = 0.0
    expected_least: float = 0.0
    expected_most: float = 0.0
    expected_mean: float = 0.0
    worst_at: tuple[int, ...] = ()
    worst: float = 0.0
    expected_worst: float = 0.0
    psnr_db: float = SILENT_DB
    rows: int = 0
    top1: float = 0.0
    margin: float = 0.0
    top5: float = 0.0
    kl: float = 0.0
    perplexity: float = 0.0
    expected_perplexity: float = 0.0
    iou: float | None = None


class Score(msgspec.Struct, frozen=True, omit_defaults=True):
    """One tensor against its reference, one sample. All of these are kept so that any criterion can
    be applied later.

    ``max_abs`` largest absolute difference; ``max_rel`` largest |a-b|/|b|; ``rel_max`` max_abs over
    max |reference|; ``rel_l2`` ||a-b|| / ||b||; ``cosine`` 1 for identical directions; ``sqnr_db``
    20 log10(||b|| / ||a-b||), SILENT_DB when equal; ``ulp`` largest distance in units in the last
    place of the coarser of the two dtypes; ``mismatched`` fraction of elements over 1e-5 absolute
    and 1e-5 relative; ``vanished`` elements that are 0 and are not in the reference, the largest of
    which is ``vanished_max`` there. Differences count finite elements only; ``new_nonfinite`` and
    ``lost_nonfinite`` count the others. NaN in the same place, and the same infinity in the same
    place, are equal. ``exact`` marks integers, booleans, strings: compared exactly in wide
    arithmetic. ``front`` is the staircase of (absolute, relative) differences that no other element
    exceeds in both: it answers every (atol, rtol) question without a new run (at most 64 steps,
    rounded outwards).
    """

    name: str
    dtype: str = "float32"
    shape: tuple[int, ...] = ()
    max_abs: float = 0.0
    max_rel: float = 0.0
    rel_max: float = 0.0
    rel_l2: float = 0.0
    cosine: float = 1.0
    sqnr_db: float = SILENT_DB
    ulp: float = 0.0
    mismatched: float = 0.0
    new_nonfinite: int = 0
    lost_nonfinite: int = 0
    first_nonfinite: int = -1  # flat index of the first new non-finite element
    exact: bool = False
    equal: bool = False  # bitwise, NaN payloads aside
    absmax: float = 0.0  # largest finite magnitude of the reference
    actual_absmax: float = 0.0
    vanished: int = 0
    vanished_max: float = 0.0
    front: tuple[tuple[float, float], ...] = ()
    problem: str = ""  # "missing", "shape": compared as a failure
    answer: Answer | None = None  # of the model's own outputs alone


class SampleResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """Scores of one sample. ``effect``: scores of the model's own outputs after transplanting;
    empty when not asked for. ``rounded``: which cut inputs changed when rounded to the storage
    precision (name -> relative L2 of the rounding), and ``unrepresentable``: those that the storage
    precision cannot hold (a finite value became infinite); ``vanished``: those of which it makes 0
    of a value that is not 0."""

    sample: str
    outputs: tuple[Score, ...] = ()
    marks: tuple[Score, ...] = ()
    effect: tuple[Score, ...] = ()
    unrepresentable: tuple[str, ...] = ()
    vanished: tuple[str, ...] = ()
    rounded: dict[str, float] = {}


Status = Literal[
    "ok", "crash", "timeout", "out-of-memory", "build-failed", "invalid-model", "unsupported", "refused", "reference-failed",
    "error", "cancelled", "fault",
]  # fmt: skip


class Measurement(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer to a probe. ``status`` other than ``ok``: ``message`` says in one sentence what
    happened. ``cancelled`` and ``fault`` (the machine's own, ``engines.faults``) are no answers:
    nothing was learnt, and neither is ever journalled.

    ``results`` are those of run 0; ``runs`` holds the further runs of the same build that differed
    from it bitwise, in order (``varies``: there were any), and ``facts["runs"]`` counts all.
    ``facts`` is plain data whose keys each probe's docstring names; ``artifacts`` name -> sha256.
    ``assumed`` is set only on answers invented for speculation and never journalled.
    """

    status: Status = "ok"
    message: str = ""
    results: tuple[SampleResult, ...] = ()
    runs: tuple[tuple[SampleResult, ...], ...] = ()
    varies: bool = False
    facts: dict[str, Any] = {}
    artifacts: dict[str, str] = {}
    notes: tuple[str, ...] = ()
    signal: int = 0
    log: str = ""  # path below the session folder
    build_seconds: float = 0.0
    run_seconds: float = 0.0  # of all runs together
    # Of one run, where there were several: the middle one, as a run that the system held up says
    # nothing.
    median_seconds: float = 0.0
    nodes: int = 0  # of the candidate that was built
    assumed: Literal["", "pass", "fail"] = ""

    @property
    def each_run(self) -> tuple[tuple[SampleResult, ...], ...]:
        """The results of run 0, then those of the runs that differed from it."""
        return (self.results, *self.runs)


class SampleInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """One feed of the session's inputs, as a step sees it."""

    id: str  # "real:0", "random:0", "near:0"
    source: str  # a file's name, a script, "random by role"
    rows: int = 0  # independent rows; 0: rows cannot be told apart
    steps: int = 0  # of a sequence; 0: it is none
    carried: dict[str, str] = {}  # of a sequence, the outputs that go back, by input
    chosen: tuple[str, ...] = ()  # and those whose largest value is the next token
    shapes: dict[str, tuple[int, ...]] = {}


def is_given(sample: str) -> bool:
    """Whether a sample, by its id, is the user's own."""
    return sample.startswith(GIVEN)


def engine_specs(probe: Probe) -> tuple[str, ...]:
    """The engine specs that a probe names: of the engine under test, of the reference."""
    return tuple(spec for field in ("engine", "reference") if (spec := getattr(probe, field, "")))


def inspected_specs(probe: Probe, met: Container[str] = ()) -> tuple[str, ...]:
    """Those whose Inspect says what the engines of a probe are: with all switches on, and what was
    ``met`` as it is."""
    named = engine_specs(probe)
    return tuple(dict.fromkeys((*map(unswitched, named), *(s for s in named if s in met))))


_encoder = msgspec.json.Encoder(order="deterministic")


def key(probe: Probe, fingerprints: dict[str, str]) -> str:
    """The content key of a probe: its question, and the fingerprint of each engine spec that it
    names: its own, where it was looked at as it is, else that with all switches on.

    Raises ``KeyError`` for a spec with no fingerprint.
    """
    names = () if isinstance(probe, Inspect) else engine_specs(probe)
    question = {
        k: v for k, v in msgspec.to_builtins(probe).items() if k not in ("timeout", "exclusive")
    }
    body = [
        FORMAT,
        question,
        {name: fingerprints.get(name) or fingerprints[unswitched(name)] for name in names},
    ]
    return hashlib.sha256(_encoder.encode(body)).hexdigest()
