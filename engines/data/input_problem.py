"""What is wrong with the inputs that a user gave."""


class InputProblem(Exception):
    """Inputs cannot be read, or do not fit the model. The message is a sentence for the user: what,
    where, what to do."""
