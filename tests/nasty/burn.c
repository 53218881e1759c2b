/* Work of a known shape: burn MILLISECONDS [END]. main -> outer -> inner, then an end: exit, _exit, quick_exit, abort,
 * kill (SIGKILL to itself), term (SIGTERM), segv, or return. */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

volatile uint64_t sink;

__attribute__((noinline)) void inner(void)
{
    uint64_t x = sink;
    for (int i = 0; i < 200000; i++)
        x = x * 6364136223846793005u + 1;
    sink = x;
}

__attribute__((noinline)) void outer(long ms)
{
    struct timespec start, now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &start);
    do {
        inner();
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    } while ((now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000 < ms);
    sink++;
}

int main(int argc, char **argv)
{
    outer(argc > 1 ? atol(argv[1]) : 100);
    const char *end = argc > 2 ? argv[2] : "return";
    printf("burnt, now %s\n", end);
    fflush(stdout);
    if (!strcmp(end, "exit"))
        exit(3);
    if (!strcmp(end, "_exit"))
        _exit(4);
    if (!strcmp(end, "quick_exit"))
        quick_exit(5);
    if (!strcmp(end, "abort"))
        abort();
    if (!strcmp(end, "kill"))
        kill(getpid(), SIGKILL);
    if (!strcmp(end, "term"))
        raise(SIGTERM);
    if (!strcmp(end, "segv"))
        *(volatile int *)8 = 0;
    return 0;
}
