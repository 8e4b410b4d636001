"""Is dimension 0 a batch? Only where rows are seen to be independent: a declared size in front says
nothing.

A vector ``y[64] = Wx + b`` has 64 first elements and no rows; taken for a batch, each of its
elements would be judged by itself, and one that happens to be small would fail for the rounding of
its neighbours.
"""

from narrowdown.engines.asking import Note, Sub
from narrowdown.engines.asking.whole_model import WholeModel
from narrowdown.engines.compare.criterion import Criterion
from narrowdown.engines.compare.judge import exceed

# Relative L2 by which a row may move when others change: the order of a sum may follow its place in
# the batch, which rounds in the last digits. What depends on other rows moves by far more.
ROWS_APART = Criterion(metric="rel_l2", tolerance=1e-3)
NO_BATCH = "Dimension 0 is no batch: what is in one row changes others. Outputs are judged whole."


def see_rows(model: WholeModel, batched: tuple[str, ...]) -> Sub[str]:
    """Why dimension 0 is no batch, as a sentence; "" where rows are independent, as the reference
    computes them. ``batched``: the feeds that have rows by what the model declares."""
    if not batched:
        return ""
    yield Note("are the rows of a batch independent?")
    moved = yield from model.compare(model.reference, samples=batched[:1], vary="repeated", runs=1)
    if moved.told:
        return NO_BATCH if exceed(moved.measurement.results, ROWS_APART) else ""
    # A reference that does not run, or rows that are all alike: an open dimension is the batch by
    # its exporter's own word, a number is not.
    declared = any(s.rows for s in model.findings.samples if s.id in batched)
    return (
        ""
        if declared
        else "Whether rows are independent could not be seen: outputs are judged whole."
    )
