/* hits ROUNDS DEPTH: calls a function from a stack of so many frames, and says how long a call takes, nanoseconds.
 * hits ROUNDS DEPTH ask: the same of a function that returns the context's number.
 * hits 0 SECONDS: eight threads that call it as often as they can for so long. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

volatile unsigned long sink;
static volatile int is_over;

__attribute__((noinline)) void leaf(unsigned long round)
{
    sink = round;
}

static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e9 + now.tv_nsec;
}

__attribute__((weak)) unsigned long callpath_context(void)
{
    return 0;
}

__attribute__((noinline)) double asking(unsigned long count)
{
    double begin = now_ns();
    for (unsigned long round = 0; round < count; round++)
        sink = callpath_context();
    return (now_ns() - begin) / count;
}

static int asks;

__attribute__((noinline)) static double rounds(unsigned long count)
{
    double begin = now_ns();
    for (unsigned long round = 0; round < count; round++)
        leaf(round);
    return (now_ns() - begin) / count;
}

__attribute__((noinline)) static double at_depth(unsigned long count, long depth)
{
    if (depth <= 0)
        return asks ? asking(count) : rounds(count);
    double per_call = at_depth(count, depth - 1);
    sink = depth;
    return per_call;
}

static void *busy(void *argument)
{
    for (unsigned long round = 0; !is_over; round++)
        leaf(round);
    return argument;
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    unsigned long count = strtoul(argv[1], NULL, 10);
    asks = argc > 3;
    if (count) {
        printf("%.3f\n", at_depth(count, atol(argv[2])));
        return 0;
    }
    pthread_t threads[8];
    for (int i = 0; i < 8; i++)
        pthread_create(&threads[i], NULL, busy, NULL);
    struct timespec wait = {atol(argv[2]), 0};
    nanosleep(&wait, NULL);
    is_over = 1;
    for (int i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
