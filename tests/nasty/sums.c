/* Sums up the code of one of its functions, as programs do that check themselves. Another function it only calls. */
#include <stdint.h>
#include <stdio.h>

#define APART __attribute__((noinline, noclone))

APART int summed(int n)
{
    __asm__ volatile("" : "+r"(n));
    return n * 7 + (n >> 3);
}

APART int called(int n)
{
    __asm__ volatile("" : "+r"(n));
    return n * 5 + (n >> 2);
}

APART unsigned sum(void)
{
    const volatile unsigned char *code = (const volatile unsigned char *)(uintptr_t)summed;
    unsigned sum = 0;
    for (int i = 0; i < 12; i++)
        sum = sum * 31 + code[i];
    return sum;
}

int main(void)
{
    int total = 0;
    unsigned before = sum();
    for (int i = 0; i < 1000; i++) {
        total += summed(i) + called(i);
        if (sum() != before)
            return 1;
    }
    printf("%d, and the code is %u\n", total, before);
    return 0;
}
