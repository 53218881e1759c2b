"""Recursion in code that numba compiles, calls from it through ctypes, and into it from C: qsort's comparator."""
import ctypes
import sys
import time

import numba
from numba import cfunc, int32, int64, njit, types

libc = ctypes.CDLL(None)
libc.qsort.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p]
libc.qsort.restype = None
qsort = libc.qsort


@njit(int64(int64), inline="never")
def leaf(value):
    for turn in range(12):
        value = value * 6364136223846793005 + turn
    return value & 4095


@njit(int64(int64, int64))
def tree(depth, value):
    if depth == 0:
        return leaf(value)
    return tree(depth - 1, value + 1) + tree(depth - 1, value ^ depth)


@cfunc(int32(types.CPointer(int64), types.CPointer(int64)))
def weigh(one, other):
    return leaf(one[0]) - leaf(other[0])


weigher = weigh.address


@njit
def sort(numbers):
    for index in range(numbers.size):
        numbers[index] = (index * 7919) % numbers.size
    qsort(numbers.ctypes.data, numbers.size, 8, weigher)
    return numbers[0]


def main():
    import numpy

    numbers = numpy.zeros(2000, dtype=numpy.int64)
    until = time.monotonic() + int(sys.argv[1]) / 1000
    total = 0
    while time.monotonic() < until:
        total += tree(14, 1) + sort(numbers)
    print(total != 0)


main()
