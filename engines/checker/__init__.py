"""A program of the user's, checker or engine: what it is given, how it is run, and how all that it
starts is ended."""
