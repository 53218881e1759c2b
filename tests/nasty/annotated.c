/* A procedure with two loops, one in the other, and a costly line that is inlined: annotated. */
#include <stdio.h>

static inline unsigned long step(unsigned long x, unsigned long seed)
{
    return x * x + seed / (x | 1); /* costly */
}

__attribute__((noinline)) unsigned long work(unsigned rounds, unsigned long seed)
{
    unsigned long sum = seed;
    for (unsigned i = 0; i < rounds; i++) {
        for (unsigned j = 0; j < 1000; j++)
            sum += step(sum ^ j, seed + i);
        sum ^= sum >> 7;
    }
    return sum;
}

int main(int argc, char **argv)
{
    (void)argv;
    printf("%lu\n", work(40000, 0x123456789abcdefUL + (unsigned)argc));
    return 0;
}
