"""The pieces of the screens. Each draws plain data; foreign text passes through
``wizard.tui.literal``."""
