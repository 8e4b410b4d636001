"""What the types that an engine stores values in can hold: where they end, and how finely they tell
values apart."""

# (significant bits, the largest exponent of two) of each storage type: IEEE 754; bfloat16 and
# TF32 have the exponents of binary32. All else follows from these two by arithmetic.
TYPES = {"float16": (11, 15), "bfloat16": (8, 127), "tf32": (11, 127), "float32": (24, 127)}


def _describe_type(storage: str) -> tuple[int, int]:
    """What is none of these ("float16", ...) is held in FP32."""
    return TYPES.get(storage, TYPES["float32"])


def largest_finite(storage: str) -> float:
    """The largest finite value of a storage type."""
    bits, exponent = _describe_type(storage)
    return (2.0 - 2.0 ** (1 - bits)) * 2.0**exponent


def smallest_positive(storage: str) -> tuple[float, float]:
    """(the smallest normal number of a storage type, below which hardware may flush to 0; the
    smallest of all, below half of which everything is 0)."""
    bits, exponent = _describe_type(storage)
    return 2.0 ** (1 - exponent), 2.0 ** (2 - exponent - bits)


def unit_roundoff(storage: str) -> float:
    """By what part of itself a value is rounded at most where it is stored: half a unit in the last
    place of 1."""
    return 2.0 ** -_describe_type(storage)[0]
