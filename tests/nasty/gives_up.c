/* Calls that do not return, which the compiler does not know: it goes on behind them. gives_up ROUNDS. The hazard: code
 * that nothing leads to makes the procedure's frame unknown, so that its calls are found by walks, or its paths are not
 * counted in contexts. */
#include <stdio.h>
#include <stdlib.h>

#define APART __attribute__((noinline, noipa))

APART void gives_up(int status)
{
    printf("gives up: %d\n", status);
    exit(status);
}

APART long leaf(long n)
{
    return n & 7;
}

/* As an allocation that must not fail. */
APART void *takes(size_t bytes)
{
    void *place = malloc(bytes);
    if (place == NULL || leaf((long)bytes) > 7)
        gives_up(2);
    return place;
}

APART long checks(long n)
{
    long sum = leaf(n);
    if (n < 0) {
        gives_up((int)-n);
        sum += leaf(sum);
    }
    for (long i = 0; i < n % 3; i++) {
        char *place = takes(16);
        place[0] = (char)n;
        sum += leaf(place[0]);
        free(place);
    }
    return sum;
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    long sum = 0;
    for (long i = 0; i < atol(argv[1]); i++)
        sum += checks(i);
    printf("%ld\n", sum);
    return (int)checks(-5);
}
