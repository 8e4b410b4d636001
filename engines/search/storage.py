"""What the types that an engine stores values in can hold: where they end, and how finely they tell
values apart."""

# Largest finite value of each storage type: IEEE 754 binary16; bfloat16 has the exponent range of binary32.
LARGEST = {"float16": 65504.0, "bfloat16": 3.3895314e38, "float32": 3.4028235e38}
# Smallest positive values: normal, below which hardware may flush to 0, and subnormal, below half
# of which all is 0.
SMALLEST = {
    "float16": (6.104e-5, 5.960e-8),
    "bfloat16": (1.1755e-38, 9.2e-41),
    "float32": (1.1755e-38, 1.4e-45),
}
# Half a unit in the last place of 1: by how much a value is rounded at most, relative to it.
UNIT = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24}
# So many equal terms added up one by one no longer move their own sum: 2 to the number of
# significant bits.
STALLS = {"float16": 2**11, "bfloat16": 2**8}


def largest_finite(storage: str) -> float:
    """The largest finite value of a storage type ("float16"); what is none of these is held in
    FP32."""
    return LARGEST.get(storage, LARGEST["float32"])


def smallest_positive(storage: str) -> tuple[float, float]:
    """(the smallest normal number of a storage type, the smallest of all)."""
    return SMALLEST.get(storage, SMALLEST["float32"])


def unit_roundoff(storage: str) -> float:
    """By what part of itself a value is rounded at most where it is stored."""
    return UNIT.get(storage, UNIT["float32"])
