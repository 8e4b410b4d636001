"""Models as graphs. Taken in and stored: ``load``; as steps see them: ``index``; a part of one:
``cut``; emulated and typed anew: ``emulate``, ``typed``; quantizers found and taken out:
``quantized``, ``bypass``."""
