# A pure Python benchmark: floats, calls, dictionaries, strings, exceptions, generators.
import sys


def bodies(steps):
    x, v = [0.1 * i for i in range(5)], [0.01 * i for i in range(5)]
    for _ in range(steps):
        for i in range(5):
            for j in range(i):
                d = x[i] - x[j] + 0.5
                f = 0.001 / (d * d + 0.01)
                v[i] -= f * d
                v[j] += f * d
        for i in range(5):
            x[i] += 0.01 * v[i]
    return sum(x)


def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


class Node:
    def __init__(self, left, right):
        self.left, self.right = left, right

    def weight(self):
        return 1 + (self.left.weight() + self.right.weight() if self.left else 0)


def tree(depth):
    return Node(tree(depth - 1), tree(depth - 1)) if depth else Node(None, None)


def words(count):
    counted = {}
    for i in range(count):
        word = "w%d" % (i * 7919 % 1009)
        counted[word] = counted.get(word, 0) + 1
    return sorted(counted.items(), key=lambda item: (-item[1], item[0]))[0]


def failures(count):
    caught = 0
    for i in range(count):
        try:
            [][i]
        except IndexError:
            caught += 1
    return caught


def primes(end):
    sieve = bytearray(b"\1") * end
    return sum(1 for i in range(2, end) if sieve[i] and not sieve.__setitem__(slice(i * i, end, i), bytes(len(range(i * i, end, i)))))


for turn in range(8 * int(sys.argv[1])):
    print(bodies(12000), fib(23), tree(13).weight(), words(120000), failures(60000), primes(200000))
