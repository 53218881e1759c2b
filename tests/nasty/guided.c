/* A loop whose depth tells wrong where control passes often: guided ROUNDS
 * The inner loop is seldom come to, and each branch nearly always goes one way. */
#include <stdio.h>
#include <stdlib.h>

#define PLAIN __attribute__((noinline, noclone))

static volatile unsigned seldom, often;

PLAIN unsigned turns(unsigned rounds)
{
    unsigned state = 12345, sum = 0;
    for (unsigned i = 0; i < rounds; i++) {
        state = state * 1103515245 + 12345;
        unsigned n = state >> 8;
        if (n % 256 == 0)
            for (unsigned k = 0; k < n / 256 % 3; k++)
                if (k % 2 == 0)
                    seldom += k;
                else
                    seldom ^= n;
        if (n % 512 == 1)
            seldom += n;
        else
            often += n;
        if (n % 128 != 2)
            often ^= n;
        else
            seldom ^= sum;
        if (n % 1024 == 3)
            seldom -= n;
        else
            often -= sum;
        sum += often ^ seldom;
    }
    return sum;
}

int main(int argc, char **argv)
{
    printf("%u\n", turns(argc > 1 ? (unsigned)atol(argv[1]) : 1));
    return 0;
}
