"""The way from a PyTorch module to an ONNX model with values to hold it against: the export in the
user's own interpreter, and the search for the place where the export departs from PyTorch."""
