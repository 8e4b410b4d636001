"""The steps: one module each, over what they share in ``engines.search``. Pure generators; they
import neither numpy nor onnx."""
