"""A module a mode: each makes of one way to ask another one. None knows of the others."""
