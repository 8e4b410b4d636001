"""How a runner is to behave. Given when it starts; part of nothing that is measured."""

from typing import Any, Literal, TypeAlias

import msgspec

from narrowdown.engines.consent import NOTHING, Consent
from narrowdown.wizard.schedulers import LOCAL

Policy: TypeAlias = Literal["person", "walk", "recommended", "script"]


class Options(msgspec.Struct, frozen=True, omit_defaults=True):
    """``policy``: who answers; ``walk``: the recommended answers are taken until one is in doubt or a
    step is expensive, then a person answers. ``answers`` (script): node -> answer id, or one for each visit;
    ``ask`` ends with exit code 3.

    ``settings`` (script): node -> for each visit, the values that the answer carries ``offers``
    wait before each step for ``go`` or ``skip`` (a person sees what it will cost first) ``jobs``
    probes at a time; 0: what the device allows ``budget``           seconds after which the session
    stops; a search ends before, with its smallest part so far; 0: no end ``handed``           names
    of variables that a checker gets beside the usual ones ``executor``         ``local``, or the
    address of a cluster's scheduler ``retry_unresolved`` ask again what ended unresolved
    ``detach`` go on when the controlling client is gone ``consent``          what of the user's may be run or
    loaded, as ``wizard.trust`` gives it; without one, nothing ``first``            requests to
    carry out before anything else (a rewind of a session that has ended)
    """

    policy: Policy = "recommended"
    answers: dict[str, str | list[str]] = {}
    settings: dict[str, list[dict[str, Any]]] = {}
    offers: bool = False
    jobs: int = 0
    executor: str = LOCAL
    budget: float = 0.0
    handed: tuple[str, ...] = ()
    retry_unresolved: bool = False
    detach: bool = False
    consent: Consent = NOTHING
    first: tuple[dict[str, Any], ...] = ()
