/* Functions that end by a jump to another one: compiled with -foptimize-sibling-calls. Such a function is no longer on
 * the path when the other one runs, and says LEFT before. */
#include "truth.h"

static volatile unsigned long sink;

long leaf(long n)
{
    ENTERED;
    sink += n;
    LEFT;
    return n + 1;
}

long second(long n)
{
    ENTERED;
    sink ^= n;
    LEFT;
    return leaf(n);
}

long first(long n)
{
    ENTERED;
    leaf(n);
    LEFT;
    return second(n);
}

long pong(long n);

long ping(long n)
{
    ENTERED;
    LEFT;
    return n == 0 ? leaf(n) : pong(n - 1);
}

long pong(long n)
{
    ENTERED;
    leaf(n);
    LEFT;
    if (n == 0)
        return 1;
    return ping(n - 1);
}

long by_pointer(long (*f)(long), long n)
{
    ENTERED;
    leaf(n);
    LEFT;
    return f(n);
}

/* A conditional jump out of it. */
long maybe(long n)
{
    ENTERED;
    LEFT;
    if (n % 2)
        return leaf(n);
    sink += n;
    return n;
}

/* By a table of jumps, each of which leaves. */
long chooses(long n)
{
    ENTERED;
    LEFT;
    switch (n % 6) {
    case 0: return leaf(n);
    case 1: return first(n + 1);
    case 2: return second(n * 3);
    case 3: return ping(n & 15);
    case 4: return maybe(n);
    default: return n;
    }
}

long calls(long n)
{
    ENTERED;
    long (*const all[])(long) = {leaf, first, second, ping, pong, maybe, chooses};
    long sum = first(n) + maybe(n) + chooses(n) + ping(n % 20);
    sum += by_pointer(all[n % 7], n % 50);
    LEFT;
    return sum;
}

int main(void)
{
    ENTERED;
    long sum = 0;
    for (long n = 0; n < 5000; n++)
        sum += calls(n);
    LEFT;
    truth_write();
    printf("%ld %lu\n", sum, sink);
    return 6;
}
