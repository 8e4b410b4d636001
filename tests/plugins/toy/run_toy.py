"""python run_toy.py MODEL INPUTS OUTPUTS: one run of toy, as Narrowdown asks for it."""

import sys

import numpy as np
import toy


def main() -> None:
    model, inputs, outputs = sys.argv[1:]
    session = toy.load(model)
    with np.load(inputs) as fed:
        values = session.run(None, dict(fed))
    np.savez(outputs, **dict(zip(session.output_names, values, strict=True)))


if __name__ == "__main__":
    print(toy.__version__) if sys.argv[1:] == ["--version"] else main()
