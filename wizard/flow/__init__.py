"""Flows: read with line numbers (``load``), checked, and which answer is recommended and where it
leads (``check``), drawn (``render``)."""
