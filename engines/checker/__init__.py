"""The external checker: what it is given, how it is run, and how all that it starts is ended."""
