"""``python -m narrowdown.engines.backends.tensorrt.ask_names PACKAGE FOLDER``: the smallest build,
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
    layer = network.add_activation(
        network.add_input("x", trt.float32, (1,)), trt.ActivationType.RELU
    )
    network.mark_output(layer.get_output(0))
    config = builder.create_builder_config()
    if package == "tensorrt_rtx":  # it builds with no GPU, for one that it is told
        config.num_compute_capabilities = 1
        config.set_compute_capability(trt.ComputeCapability.SM89, 0)
    builder.build_serialized_network(network, config)


if __name__ == "__main__":
    main()
