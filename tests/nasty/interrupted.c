/* A signal interrupts a wait, and its handler computes: interrupted MODE
 *   returns  the handler returns, and the wait ends by that
 *   jumps    the handler leaves the wait by siglongjmp
 * `waits` waits for 50 ms, `handles` computes for 20, five times each. */
#define _GNU_SOURCE
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

static volatile int sink;
static int jumps;
static sigjmp_buf place;

static long now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000L + now.tv_nsec;
}

__attribute__((noinline)) void handles(int number)
{
    (void)number;
    for (long end = now_ns() + 20000000; now_ns() < end;)
        sink++;
    if (jumps)
        siglongjmp(place, 1);
}

__attribute__((noinline)) void waits(void)
{
    struct itimerval timer = {{0, 0}, {0, 50000}};
    setitimer(ITIMER_REAL, &timer, NULL);
    poll(NULL, 0, 10000);
    sink++;
}

__attribute__((noinline)) void tries(void)
{
    if (!sigsetjmp(place, 1))
        waits();
    sink++;
}

int main(int argc, char **argv)
{
    jumps = argc > 1 && !strcmp(argv[1], "jumps");
    signal(SIGALRM, handles);
    for (int i = 0; i < 5; i++)
        tries();
    return 3;
}
