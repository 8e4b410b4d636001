"""The machine room: everything that touches a model, a tensor or a native library. Knows nothing of ``wizard``."""
