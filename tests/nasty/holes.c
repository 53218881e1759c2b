/* Stacks with pages that nobody has touched: holes THREADS [one|far]. One thread after the other goes nine large frames deep, or has one that
 * is larger, or three that are much larger, touches a byte of each, and works in each for some milliseconds. */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static volatile uint64_t sink;

static uint64_t cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static __attribute__((noinline)) void work(void)
{
    uint64_t x = sink;
    for (uint64_t until = cpu_ns() + 5000000; cpu_ns() < until;)
        for (int i = 0; i < 50000; i++)
            x = x * 6364136223846793005u + 1;
    sink = x;
}

static __attribute__((noinline)) int down(int depth)
{
    volatile char frame[18000];
    frame[0] = (char)depth;
    work();
    if (depth > 0)
        frame[0] += (char)down(depth - 1);
    return frame[0];
}

static __attribute__((noinline)) int one(void)
{
    volatile char frame[150000];
    frame[0] = 1;
    for (int i = 0; i < 9; i++)
        work();
    return frame[0];
}

static __attribute__((noinline)) int far(int depth)
{
    volatile char frame[600000];
    frame[0] = (char)depth;
    for (int i = 0; i < 3; i++)
        work();
    if (depth > 0)
        frame[0] += (char)far(depth - 1);
    return frame[0];
}

static void *thread(void *arg)
{
    const char *what = arg != NULL ? arg : "";
    sink += (uint64_t)(strcmp(what, "far") == 0 ? far(2) : strcmp(what, "one") == 0 ? one() : down(8));
    return arg;
}

int main(int argc, char **argv)
{
    for (int left = argc > 1 ? atoi(argv[1]) : 20; left > 0; left--) {
        pthread_t started;
        if (pthread_create(&started, NULL, thread, argc > 2 ? argv[2] : NULL) != 0)
            return 1;
        pthread_join(started, NULL);
    }
    return 0;
}
