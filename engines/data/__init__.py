"""Inputs and golden outputs, read and made. A session's samples: ``samples``; files of every kind:
``files``; random data by what an input is for: ``roles``; samples made near those that there are:
``near``."""
