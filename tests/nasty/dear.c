/* Has one procedure with a dear way and a cheap one, each taken as often as the other: the dear one executes fewer instructions and takes longer, for
 * it divides. Goes on until it has used 0.6 s, and says how often it has taken each. Then it uses 0.1 s on a path that does not end. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

unsigned long sum = 1;

#define TIMES_4(what) what what what what
#define TIMES_32(what) TIMES_4(TIMES_4(what what))

/* Each division waits for the one before. */
#define DIVIDE "xor %%edx, %%edx\n\tor $1, %%rax\n\tdiv %1\n\tbswap %%rax\n\t"
#define FILL "mov %2, %%rcx\n\trep stosb\n\tsub %2, %%rdi\n\t"
/* Nothing waits. */
#define PASS "nop\n\tnop\n\tnop\n\tnop\n\tnop\n\tnop\n\tnop\n\tnop\n\tnop\n\tnop\n\tnop\n\tnop\n\t"

__attribute__((noinline)) void works(int is_dear) {
    sum += 1;
    if (is_dear)
        __asm__ volatile(TIMES_32(DIVIDE) : "+a"(sum) : "r"(3ul) : "rdx", "cc", "memory"); /* DEAR */
    else
        __asm__ volatile(TIMES_32(PASS)::: "memory"); /* CHEAP */
    sum += 2;
}

static double used(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

static char memory[1 << 24];
void (*volatile leave)(int) = exit;

/* No block of the second way is on a path that ends. */
__attribute__((noinline)) void leaves(int is_last) {
    if (is_last) {
        char *to = memory;
        __asm__ volatile(TIMES_4(TIMES_32(FILL)) : "+D"(to) : "a"(0), "r"(sizeof memory) : "rcx", "memory", "cc");
        leave(0);
    }
    sum += 3;
}

int main(void) {
    unsigned long each = 0;
    while (used() < 0.6)
        for (int i = 0; i < 1000; i++, each++) {
            works(1);
            works(0);
        }
    printf("%lu\n", each);
    leaves(0);
    leaves(1);
}
