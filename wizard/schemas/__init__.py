"""JSON Schemas of what programs read: ``events`` (``--display json``), ``report`` (``report
--format json``) and ``replay`` (``replay --json``), generated from the structs that are written."""
