"""Flows: read with line numbers (``load``), checked (``check``), which answer is recommended and
where it leads (``rules``), drawn (``render``)."""
