"""Known bugs of engines: what the table in ``flows/known`` holds, how it is read, what looks like
one, and the small models that show it."""
