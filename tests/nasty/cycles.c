/* Recursion of every shape: cycles DEPTH. Of itself, of two and of three, out of two call sites, through the C library's
 * qsort and back, and by longjmp out of the middle. The hazard: a call of a procedure that is active counts in another
 * context than that of its outermost activation, or what it calls then does. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#define APART __attribute__((noinline, noipa))

static jmp_buf back;
static long depth;

APART long leaf(long n)
{
    return n & 3;
}

APART long other_leaf(long n)
{
    return n & 1;
}

APART long odd(long n);

APART long even(long n)
{
    return n == 0 ? leaf(n) : odd(n - 1) + leaf(n);
}

APART long odd(long n)
{
    return n == 0 ? 0 : even(n - 1) + 1;
}

APART long fib(long n)
{
    if (n < 2)
        return leaf(n);
    long sum = fib(n - 1);
    sum += other_leaf(sum);
    return sum + fib(n - 2);
}

APART long third(long n);

APART long first(long n)
{
    return n > 0 ? third(n - 1) + fib(4) : leaf(n);
}

APART long second(long n)
{
    return n > 0 ? first(n - 1) + other_leaf(n) : leaf(n);
}

APART long third(long n)
{
    return n % 2 ? second(n) + 1 : first(n) + 2;
}

APART long sorts(long n);

APART int compares(const void *a, const void *b)
{
    sorts(*(const long *)a - 2);
    return (*(const long *)a > *(const long *)b) - (*(const long *)a < *(const long *)b);
}

APART long sorts(long n)
{
    if (n <= 0)
        return leaf(n);
    long values[] = {n, n - 2, n - 1};
    qsort(values, 3, sizeof *values, compares);
    return values[0] + other_leaf(n);
}

APART long falls(long n)
{
    if (n == 0 && depth > 0)
        longjmp(back, 1);
    if (n == 0)
        return leaf(n);
    return falls(n - 1) + leaf(n);
}

APART long down(long n)
{
    return n > 0 ? down(n - 1) + 1 : leaf(n);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    depth = atol(argv[1]);
    long sum = even(41) + fib(14) + first(12) + second(9) + sorts(9);
    if (setjmp(back) == 0)
        sum += falls(30);
    sum += even(7) + leaf(sum);
    sum += down(depth);
    printf("%ld\n", sum);
    return 6;
}
