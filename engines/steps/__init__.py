"""The steps: one module each. Pure generators; they import neither numpy nor onnx."""
