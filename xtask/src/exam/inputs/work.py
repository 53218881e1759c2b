import sys
class Shape:
    def __init__(self, *sides): self.sides = sides
    def area(self): return 0
    def __lt__(self, other): return self.area() < other.area()
class Box(Shape):
    def area(self): return self.sides[0] * self.sides[1]
def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
def gen(n):
    for i in range(n):
        try: yield i * i
        finally: pass
counts = {}
for line in open('text.txt'):
    for word in line.split(): counts[word] = counts.get(word, 0) + 1
print(sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:5])
print(fib(9), sum(gen(10)), max([Box(1, 2), Box(3, 4)]).area(), f"{3.14159:.2f}", "%s %r" % (1, 'a'))
try: {}['x']
except KeyError as e: print('caught', e)
print(2 ** 200 % 10 ** 9 + 7, int('123' * 30) // 997, bytes(range(10)).hex(), str(b'ab', 'utf8').encode('utf-16'), {1, 2} & {2, 3})
exec(compile("def f(a, *b, c=1, **d):\n return [x for x in (a, *b, c)] + [d]\nprint(f(1, 2, c=3, z=4))", 'x', 'exec'))
print([*map(str, filter(None, [0, 1, 2]))], ' a b '.strip().upper().replace('A', 'b').split(), sys.maxsize, hash((1, 2, 3)) != 0)
