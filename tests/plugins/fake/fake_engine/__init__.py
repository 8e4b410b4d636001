"""The engine with an injected fault, for tests: what is known of it without loading what it runs
on."""

from narrowdown.engines.declaration import NAMES, WORD, Declaration, Option

DECLARATION = Declaration(
    "fake",
    "ONNX Runtime with an injected fault. For tests.",
    "fake_engine.engine",
    package="onnxruntime",
    install="pip install onnxruntime",
    family="onnxruntime",
    hidden=True,
    options=(
        Option(
            "fault", "str", "none", "What goes wrong.",
            (
                "none", "wrong", "shifted", "crash", "abort", "exit", "hang", "memory", "out-of-memory", "build-failed",
                "invalid-model", "error", "stale", "rows",
            ),
        ),
        Option("at", "str", "run", "When it goes wrong.", ("build", "run")),
        Option("ops", "list", (), "Only where nodes of all these operators are present, joined with +.", harmless=NAMES),
        Option("nodes", "list", (), "Only where all nodes with these names are present, joined with +.", harmless=NAMES),
        Option(
            "size", "str", "0.5", "wrong: results times 1 + size; shifted: results plus size; inf and nan are allowed.",
            harmless=WORD,
        ),
        Option("also", "list", (), "wrong: further nodes, each by its NAME*SIZE, joined with +.", harmless=NAMES),
        Option("rate", "float", 1.0, "How often, 0 to 1: drawn by seed and attempt, with per=run by run.", least=0, most=1),
        Option("per", "str", "build", "Whether a build or each run of it is drawn.", ("build", "run")),
        Option("seed", "int", 1, "Of the draws.", least=0),
        Option(
            "marks", "str", "keep",
            "What fixes the fault: nothing; any observed tensor; split: an output of the model between its nodes; "
            "parted: another node between them.",
            ("keep", "cure", "split", "parted"),
        ),
        Option("seconds", "float", 3600.0, "hang: for how long.", least=0),
        Option("mib", "int", 1024, "memory: how much is taken before giving up.", least=1),
        Option("tactics", "int", 0, "Kernels to choose from for each node, drawn by seed and attempt; 0: no choice.", least=0),
        Option("bad", "int", 0, "With tactics: only where the nodes of the fault chose this one.", least=0),
        Option("rebuilt", "str", "", "It claims to have been built before, and that this spec builds the like.", harmless=NAMES),
        Option("level", "int", 2, "How hard it optimizes.", least=0, most=2, twin="1"),
        Option("building", "float", 0.0, "Seconds that the first build of a process takes at level 2.", least=0),
        Option("gpus", "int", 0, "The GPUs that a build is said to take.", least=0),
    ),
)  # fmt: skip
