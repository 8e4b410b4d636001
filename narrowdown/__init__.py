"""Narrowdown, one name to import: ``narrowdown.wizard``, ``narrowdown.engines``,
``narrowdown.flows``.

The three are folders at the top of the repository, and links here, so that a user's own folder
``engines`` can never be taken for ours. A wheel holds them as plain folders.
"""
