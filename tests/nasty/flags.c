/* A function that returns flags beside its result: what is called where it is left must keep both. */
#include <stdio.h>

__asm__(".text\n.globl compares\n.type compares,@function\ncompares:\n\tcmpq $100, %rdi\n\tmovq %rdi, %rax\n\tnop\n\tnop\n\tret\n"
        ".size compares, . - compares\n");

static volatile long wrong, called;

static void asks(long number)
{
    long same;
    unsigned char is_less, is_equal;
    __asm__ volatile("subq $128, %%rsp\n\tcall compares\n\tsetl %1\n\tsete %2\n\tleaq 128(%%rsp), %%rsp"
                     : "=a"(same), "=q"(is_less), "=q"(is_equal)
                     : "D"(number)
                     : "cc", "memory");
    called++;
    wrong += same != number || is_less != (number < 100) || is_equal != (number == 100);
}

int main(void)
{
    for (long round = 0; round < 50; round++)
        for (long number = 0; number < 200; number++)
            asks(number);
    printf("%ld called, %ld wrong\n", called, wrong);
    return 0;
}
