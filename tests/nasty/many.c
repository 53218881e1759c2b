/* Calls a function 100 million times, and knows what comes out. */
#include <stdio.h>

unsigned long once(unsigned long n)
{
    __asm__ volatile("" : "+r"(n));
    return n * 3 + 1;
}

int main(void)
{
    unsigned long sum = 0;
    for (unsigned long n = 0; n < 100000000; n++)
        sum += once(n);
    printf("%lu\n", sum);
    return 2;
}
