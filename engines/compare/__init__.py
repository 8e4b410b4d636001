"""When a sample fails. Every metric of a tensor: ``metrics``; what is allowed: ``criterion``; pass,
fail or unresolved: ``judge`` (``over`` for one output); the words for it: ``say``."""
