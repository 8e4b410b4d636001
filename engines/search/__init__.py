"""The search for the smallest failing part, and what it stands on: how it settles and names causes.
How often, of which form of the engine and by whom it is told is decided in ``engines.asking``."""
