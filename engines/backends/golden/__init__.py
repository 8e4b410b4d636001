"""Golden outputs: what is known of them without opening them."""

from narrowdown.engines.declaration import NAMES, Declaration, Option


def _check_names(pairs: tuple[str, ...]) -> tuple[str, ...]:
    """Each ``RECORDED=TENSOR``. Raises ``ValueError``."""
    for pair in pairs:
        if not all(pair.partition("=")):
            raise ValueError(
                f"golden: '{pair}' is not RECORDED=TENSOR; names=logits=output_0 reads 'logits' as 'output_0'."
            )
    return pairs


DECLARATION = Declaration(
    "golden",
    "Outputs that were recorded where the model is right: in training, in another runtime, by hand. A reference only.",
    "narrowdown.engines.backends.golden.engine",
    package="numpy",
    install="pip install numpy",
    options=(
        Option(
            "files", "library", (),
            "npz, npy, Polygraphy's or trtexec's JSON, .pb, SCRIPT.py with load_outputs(), or folders of them.",
            what="golden outputs",
        ),
        Option(
            "names", "list", (), "RECORDED=TENSOR for each tensor that is recorded under another name than the model's.",
            harmless=NAMES,
        ),
    ),
    lists={"names": _check_names},
    required=("files",),
    needs="It needs what was recorded: golden:OUTPUTS.npz.",
    bare="files",
    recorded=True,
    title="golden outputs",
)  # fmt: skip
