"""Sessions for other programs, over the Model Context Protocol: what the command line answers, and
never a consent."""
