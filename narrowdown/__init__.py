"""Narrowdown, one name to import: ``narrowdown.run`` finds why an engine is wrong on a model
(docs/python.md).

``narrowdown.wizard``, ``narrowdown.engines`` and ``narrowdown.flows`` are folders at the top of the
repository, and links here, so that a user's own folder ``engines`` can never be taken for ours. A
wheel holds them as plain folders.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from narrowdown.api import NarrowdownError, Report, run

__all__ = ["NarrowdownError", "Report", "run"]


def __getattr__(name: str) -> Any:
    """Read only when it is asked for: a worker needs none of it."""
    if name not in __all__:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    from narrowdown import api

    return getattr(api, name)
