import sys
import numpy

numbers = numpy.random.default_rng(1)
size = 900
a, b = numbers.random((size, size)), numbers.random((size, size))
for turn in range(int(sys.argv[1])):
    c = a @ b
    for _ in range(6):
        c = (a @ c) / size
    print(c.sum(), numpy.linalg.solve(a + numpy.eye(size), b).sum(), numpy.linalg.svd(a[:300, :300])[1].sum())
