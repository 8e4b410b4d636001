"""The case bundle: what is handed on, runnable without Narrowdown."""
