"""Known bugs of engines: what the table in ``flows/known`` holds, and how it is read."""
