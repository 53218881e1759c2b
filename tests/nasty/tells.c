/* Says what of signals it was started with, and exits with 7: tells [MILLISECONDS of work first]. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

volatile uint64_t sink;

__attribute__((noinline)) void told_work(long ms)
{
    struct timespec start, now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &start);
    do {
        for (int i = 0; i < 20000; i++)
            sink = sink * 6364136223846793005u + 1;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    } while ((now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000 < ms);
}

int main(int argc, char **argv)
{
    struct sigaction action;
    sigset_t blocked, pending;
    sigaction(SIGTRAP, 0, &action);
    sigprocmask(SIG_BLOCK, 0, &blocked);
    sigpending(&pending);
    told_work(argc > 1 ? atol(argv[1]) : 0);
    printf("SIGTRAP is %s, %s, %s\n", action.sa_handler == SIG_IGN ? "ignored" : "not ignored",
           sigismember(&blocked, SIGTRAP) ? "blocked" : "not blocked",
           sigismember(&pending, SIGTRAP) ? "pending" : "not pending");
    return 7;
}
