"""Whatever runs an engine. Who gets which probe, and what becomes of one that dies or takes too
long: ``pool``; what a worker does with it: ``operations``, ``measure``; reference values of inner
tensors: ``captures``."""
