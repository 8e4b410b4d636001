"""What is wrong with a model, as one sentence for its owner."""


class ModelProblem(Exception):
    """The model cannot be read, cut or converted. The message is a sentence: what happened, to
    what, what to do next."""
