"""What a session is: its ``journal``, the ``state`` that this means, what comes next (``decide``),
and its ``folder``."""
