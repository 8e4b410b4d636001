"""``python -m narrowdown.engines.backends.tensorrt.ask_names PACKAGE FOLDER``: a small build,
so that the library reads the options in its environment variable and says what it makes of them."""

import importlib
import os
import sys


def main() -> None:
    package, folder = sys.argv[1:]
    trt = importlib.import_module(package)
    os.chdir(folder)
    builder = trt.Builder(trt.Logger(trt.Logger.ERROR))
    network = builder.create_network(0)
    # An attention: of a model without anything for the compiler, such as a Relu, 10.6 says nothing.
    x, turned = network.add_input("x", trt.float32, (1, 8, 8)), trt.MatrixOperation.TRANSPOSE
    layer = network.add_matrix_multiply(x, trt.MatrixOperation.NONE, x, turned)
    layer = network.add_softmax(layer.get_output(0))
    layer = network.add_matrix_multiply(
        layer.get_output(0), trt.MatrixOperation.NONE, x, trt.MatrixOperation.NONE
    )
    network.mark_output(layer.get_output(0))
    config = builder.create_builder_config()
    if package == "tensorrt_rtx":  # it builds with no GPU, for one that it is told
        config.num_compute_capabilities = 1
        config.set_compute_capability(trt.ComputeCapability.SM89, 0)
    builder.build_serialized_network(network, config)


if __name__ == "__main__":
    main()
