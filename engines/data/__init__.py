"""Inputs and golden outputs, read and made. A session's samples: ``samples``; files of every kind:
``files``; random data by what an input is for: ``roles``; samples made near those that there are:
``near``. What is wrong with them is an ``InputProblem``."""


class InputProblem(Exception):
    """Inputs cannot be read, or do not fit the model. The message is a sentence for the user: what,
    where, what to do."""
