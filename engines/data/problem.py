"""What is wrong with the inputs that a user gave."""


class InputProblem(Exception):
    """Inputs cannot be read, or do not fit the model. The message is one sentence or two for the user: what, where, what to do."""
