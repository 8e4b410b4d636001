"""The terminal UI, a client of the runner. ``app`` holds it together; what a screen draws of:
``scene``; keys: ``keys``; what one session gives and takes: ``client``; the list of sessions:
``library``."""
