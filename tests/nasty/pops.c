/* A leaf that has popped rbp and works on: pops MILLISECONDS. Its call frame information goes on to name the place where rbp was, as
 * that of compilers does, and by then the leaf has something else there: below rsp, in its red zone. Its caller's frame is found by
 * rbp alone. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void leaf(void);
__asm__(
    ".text\n .globl leaf\n .type leaf, @function\n"
    "leaf:\n .cfi_startproc\n"
    "push %rbp\n .cfi_def_cfa_offset 16\n .cfi_offset rbp, -16\n"
    "xor %ebp, %ebp\n"
    "pop %rbp\n .cfi_def_cfa_offset 8\n"
    "movq $0x1234, -8(%rsp)\n"
    "mov $100000, %ecx\n"
    "1: dec %ecx\n jnz 1b\n"
    "ret\n .cfi_endproc\n .size leaf, . - leaf\n");

static long cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec * 1000000000L + now.tv_nsec;
}

/* With a frame of a size that is not known before. */
__attribute__((noinline)) static int hold(int bytes)
{
    char *room = __builtin_alloca(bytes);
    memset(room, 1, bytes);
    leaf();
    return room[bytes / 2];
}

int main(int argc, char **argv)
{
    long until = cpu_ns() + (argc > 1 ? atol(argv[1]) : 300) * 1000000;
    int sum = 0;
    for (int i = 0; cpu_ns() < until; i++)
        sum += hold(100 + i % 100);
    printf("%d\n", sum > 0);
    return 0;
}
