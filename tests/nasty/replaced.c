/* One of two programs whose code lies at the same addresses: replaced MILLISECONDS [PROGRAM ARGUMENT]... Works so long in mid_NAME, maps code
 * thousands of times, says how much CPU time it has used, and executes the other. Built without PIE, with -DNAME=one or two. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define JOINED(a, b) a##b
#define CALLED(a, b) JOINED(a, b)
#define MID CALLED(mid_, NAME)
#define SPIN CALLED(spin_, NAME)

static volatile uint64_t sink;

static long used_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

__attribute__((noinline)) void SPIN(long until)
{
    while (used_ms() < until)
        for (int i = 0; i < 100000; i++)
            sink = sink * 6364136223846793005u + 1;
    sink++;
}

__attribute__((noinline)) void MID(long until)
{
    SPIN(until);
    sink++;
}

int main(int argc, char **argv)
{
    MID(used_ms() + (argc > 1 ? atol(argv[1]) : 100));
    for (int i = 0; argc > 2 && i < 5000; i++)
        munmap(mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096);
    printf("%ld\n", used_ms());
    fflush(stdout);
    if (argc > 2)
        execv(argv[2], argv + 2);
    return 0;
}
