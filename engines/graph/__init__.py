"""Models as graphs. Taken in and stored: ``load``; as steps see them: ``index``; a part of one:
``cut``; emulated and typed anew: ``emulate``, ``typed``; quantizers found and taken out:
``quantized``, ``bypass``. What is wrong with one is a ``ModelProblem``."""


class ModelProblem(Exception):
    """The model cannot be read, cut or converted. The message is a sentence: what happened, to
    what, what to do next."""
