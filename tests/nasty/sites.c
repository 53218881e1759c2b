/* Calls by many paths: wrappers, function pointers, recursion. The program knows how often each path is called. */
#include "truth.h"

static unsigned long sink;

static unsigned next(unsigned *seed)
{
    *seed = *seed * 1103515245 + 12345;
    return *seed >> 16;
}

void leaf(long n)
{
    ENTERED;
    sink += n;
    LEFT;
}

void other_leaf(long n)
{
    ENTERED;
    sink ^= n;
    LEFT;
}

void thin(long n)
{
    ENTERED;
    leaf(n);
    LEFT;
}

/* With a frame pointer and memory of a length that only it knows. */
void thick(long n)
{
    ENTERED;
    volatile char memory[16 + n % 100];
    memory[n % 16] = (char)n;
    leaf(n + memory[n % 16]);
    thin(n);
    LEFT;
}

void twice(long n)
{
    ENTERED;
    thin(n);
    leaf(n);
    thin(n + 1);
    LEFT;
}

void by_pointer(void (*f)(long), long n)
{
    ENTERED;
    f(n);
    f(n + 1);
    LEFT;
}

void down(long n)
{
    ENTERED;
    if (n > 0)
        down(n - 1);
    else
        leaf(n);
    LEFT;
}

int odd(long n);

int even(long n)
{
    ENTERED;
    int is = n == 0 ? 1 : odd(n - 1);
    LEFT;
    return is;
}

int odd(long n)
{
    ENTERED;
    int is = n == 0 ? 0 : even(n - 1);
    LEFT;
    return is;
}

long fib(long n)
{
    ENTERED;
    long result = n < 2 ? n : fib(n - 1) + fib(n - 2);
    LEFT;
    return result;
}

void tree(unsigned *seed, int depth)
{
    ENTERED;
    for (unsigned calls = next(seed) % 4; calls && depth; calls--)
        switch (next(seed) % 7) {
        case 0: thin(depth); break;
        case 1: thick(depth); break;
        case 2: twice(depth); break;
        case 3: by_pointer(next(seed) % 2 ? leaf : other_leaf, depth); break;
        case 4: by_pointer(next(seed) % 2 ? thin : thick, depth); break;
        default: tree(seed, depth - 1);
        }
    LEFT;
}

/* Several places of one function. */
void places(long n)
{
    ENTERED;
    leaf(n);
    for (long i = 0; i < 10; i++)
        leaf(i);
    if (n % 2)
        leaf(n);
    LEFT;
}

int main(void)
{
    ENTERED;
    unsigned seed = 7;
    for (int i = 0; i < 300; i++)
        tree(&seed, 6);
    for (long n = 0; n < 200; n++)
        places(n);
    for (long n = 0; n < 40; n++)
        down(n);
    for (int i = 0; i < 3; i++)
        down(300);
    printf("%d %d\n", even(31), odd(57));
    printf("%ld\n", fib(14));
    LEFT;
    truth_write();
    printf("%lu\n", sink);
    return 5;
}
