"""An engine as steps see it: what is journalled of it, read into named fields.

That may have been written by an earlier version or by somebody else's package: what is missing
there has its default.
"""

from collections.abc import Mapping

import msgspec

from narrowdown.engines.declaration import Option


class Capability(msgspec.Struct, frozen=True):
    """Present, or absent with a sentence that says why and what would change it."""

    present: bool
    reason: str = ""


class Recorded(msgspec.Struct, frozen=True):
    """What was recorded in place of being computed: how many samples, and the shape of each tensor
    of the first by its name."""

    samples: int
    shapes: dict[str, tuple[int, ...]]


class EngineInfo(msgspec.Struct, frozen=True):
    """What an engine is, here and with these options.

    ``precision`` is what it computes in (decides the default tolerance); ``storage`` the dtype that
    inner float tensors have in it (``float32``, ``float16``, ``bfloat16``: cut tensors are fed
    rounded to it). ``fingerprint`` changes whenever results may: engine, version, options, device,
    driver, CPU features, threads. ``capabilities``: build, run, mark, keep (precision per node),
    optimizers (can be switched), tactics, rebuild (a new build may differ), threads. ``notes``:
    sentences on what the engine really does here where its name or its options promise something
    else. ``typed``: the spec with which it computes a file in the types that the file states, so
    that a workaround can be written into one; "": it retypes as it likes. ``rebuilt``: of one that
    was built elsewhere and runs as it is, the spec that builds the like, as far as it tells; "": it
    builds. ``kept_whole``: the spec of the engine whose bits it gives where every node is kept; "":
    nobody's. ``experimental``: a sentence on why no release may be trusted to keep ``optimizers`` and
    what they do; "": they are official. ``apart``: with all of them off at once nothing can be
    built.
    """

    name: str = ""
    spec: str = ""  # canonical
    version: str = ""
    device: str = ""
    precision: str = "fp32"
    storage: str = "float32"
    fingerprint: str = ""
    capabilities: Mapping[str, Capability] = {}
    options: tuple[Option, ...] = ()
    # Names that may be switched off, where that is possible; a family is what stands before the
    # first ``:`` of several.
    optimizers: tuple[str, ...] = ()
    experimental: str = ""
    apart: bool = False
    slots: int = 1  # how many builds fit this device at once, memory aside
    gpus: int = 0  # that a build takes
    spans: bool = False  # one build serves all shapes from ``least_shapes`` to ``feed_shapes``
    notes: tuple[str, ...] = ()
    recorded: Recorded | None = None  # of one that computes nothing
    typed: str = ""
    rebuilt: str = ""
    kept_whole: str = ""

    def can(self, what: str, *, untold: bool = False) -> bool:
        """Whether it has a capability; ``untold``: what an engine that says nothing of it is taken
        for."""
        return self.capabilities.get(what, Capability(untold)).present

    def reason(self, what: str) -> str:
        """Why it has not; "" where it does not say."""
        return self.capabilities.get(what, Capability(False)).reason

    def usual(self, option: str, absent: str) -> str:
        """The value of an option that is not given; ``absent`` where it has no such option."""
        return next((o.usual for o in self.options if o.name == option), absent)


def view_engine(plain: Mapping[str, object]) -> EngineInfo:
    """An engine as plain data, read; one that cannot be read tells nothing."""
    try:
        return msgspec.convert(plain, EngineInfo)
    except msgspec.ValidationError:
        return EngineInfo()
