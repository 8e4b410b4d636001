"""drift for Narrowdown: what is known of it with nothing loaded, and what a case's check.py takes
to run it."""

from narrowdown.engines.declaration import CheckPart, Declaration, Found, Option

CHECK = """
def start():
    import drift
    import onnx

    engine = drift.load(onnx.load(HERE / MODEL), **SETTINGS)

    def run(feeds):
        return dict(zip(engine.output_names, engine.run(None, {name: feeds[name] for name in engine.input_names})))

    return run, f"drift {drift.__version__}"
"""


def check_part(found: Found) -> CheckPart:
    return CheckPart(CHECK, {"tanh": found.chosen["tanh"]})


DECLARATION = Declaration(
    "drift",
    "drift: an engine in numpy with a table for Tanh.",
    "narrowdown_drift.engine",
    package="drift",
    install="pip install drift-engine",
    options=(
        Option("tanh", "str", "table", "How Tanh is computed.", ("table", "exact"), plain="exact"),
    ),
    check_part=check_part,
)
