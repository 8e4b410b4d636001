"""The report of a session: one document (plain data), three forms."""
