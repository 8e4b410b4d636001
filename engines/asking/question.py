"""What a search may ask about a model."""

from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec

from narrowdown.engines.asking import Note
from narrowdown.engines.compare.criterion import Signature
from narrowdown.engines.graph import ranges
from narrowdown.engines.probe import Candidate, Edit

NodeIds: TypeAlias = frozenset[int]
Feed: TypeAlias = Literal["stored", "exact"]


class Fed(msgspec.Struct, frozen=True):
    """The whole model is fed these samples, each of which is told, in place of the one that the
    search works on. ``inputs``: digest of the inputs that hold them, "": the session's. ``runs`` of
    the build, 0: as many as a verdict needs. ``nudge``: inputs are moved by one unit in the last
    place, another draw in each run."""

    samples: tuple[str, ...]
    inputs: str = ""
    runs: int = 0
    nudge: Literal["", "inputs"] = ""


class Question(msgspec.Struct, frozen=True):
    """Does this part of the model fail as the model does? Ids only, so that a dictionary can answer.

    ``nodes``: the part that is cut out, fed with what the reference has there; None: the whole
    model, held against the reference by its own outputs. ``outputs``: the tensors that are judged,
    as a rule what the rest of the model reads. ``alone``: each of the nodes by itself, all in one
    build. ``edits``: with these simplifications; ``like``: it must then fail as this part did.
    ``part``: the cut as a case holds it, in place of one that is made of ``nodes``; one that was made
    simpler fails by the outputs of ``like``. ``fed``: other samples than the one that the search
    works on. ``right``: tensors that are given their true values where they are made; ``keep``:
    nodes in FP32; ``righted``: nodes that the reference computes; all beside what earlier culprits
    are cured by, unless ``uncured``. ``rewrite``: what is done to the whole model, and where
    (``engines.graph.rewrites``). ``off``: what is switched off in the engine; ``choose``: kernels
    that the build takes, by layer; ``avoid``: those that it does not. ``feed``: values as the engine
    would have stored them, or exactly. ``watch``: tensors whose scores are wanted, too. ``build``:
    this fresh build alone; None: as many as a verdict needs. ``save``: keep what was built under
    this name. ``reference``: of the reference, not the engine. ``note``: what people are told where
    it has to be asked.

    What the layers alone set: ``record``: the build tells which kernels it chose; ``runs`` of it, 0:
    none; ``exclusive``: nothing else runs meanwhile.
    """

    nodes: NodeIds | None = None
    outputs: tuple[int, ...] = ()
    alone: bool = False
    part: Candidate | None = None
    fed: Fed | None = None
    right: NodeIds = frozenset()
    keep: NodeIds = frozenset()
    righted: NodeIds = frozenset()
    uncured: bool = False
    rewrite: tuple[str, str] = ("", ranges.ALL)
    off: frozenset[str] = frozenset()
    choose: Mapping[str, str] = {}
    avoid: Mapping[str, tuple[str, ...]] = {}
    edits: tuple[Edit, ...] = ()
    like: Signature | None = None
    feed: Feed = "stored"
    watch: tuple[int, ...] = ()
    build: int | None = None
    save: str = ""
    reference: bool = False
    note: Note | None = None
    record: bool = False
    runs: int = 1
    exclusive: bool = False
