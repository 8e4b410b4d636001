"""The gate: which scripts, commands and libraries may run, and the one place that finds out which
there are.

Whatever a PROBLEM can make run or load is resolved here once, to absolute canonical paths and
digests (``items``). What the user types is remembered (``agree``); a session's own PROBLEM passes
only where all of it was agreed to (``admit``). Both give a ``Consent``, without which nothing of a
user's is run or loaded anywhere, and which nobody else makes.
"""

from narrowdown.wizard.trust.gate import (
    ALL,
    Unremembered,
    Untrusted,
    admit,
    admit_items,
    admit_session,
    agree,
    remember,
    sentence,
    trust_file,
    trusted,
)
from narrowdown.wizard.trust.items import KINDS, Item, items

__all__ = [
    "ALL",
    "KINDS",
    "Item",
    "Unremembered",
    "Untrusted",
    "admit",
    "admit_items",
    "admit_session",
    "agree",
    "items",
    "remember",
    "sentence",
    "trust_file",
    "trusted",
]
