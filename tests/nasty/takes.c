/* Functions that take time by sleeping, so that it is known how much they take at least: their own sleep.
 *   main -> 3 * outer (20 ms) -> 2 * middle (10 ms) -> inner (5 ms); outer -> inner; down(10): 2 ms at each level
 *   two threads: beside (30 ms) -> inner
 * The last line of `times` is what passed from the first to the last, ns. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <time.h>

static void sleeps(long ms)
{
    struct timespec time = {0, ms * 1000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &time, &time))
        ;
}

void inner(void)
{
    sleeps(5);
}

void middle(void)
{
    sleeps(10);
    inner();
}

void outer(void)
{
    middle();
    sleeps(20);
    middle();
    inner();
}

void down(int n)
{
    sleeps(2);
    if (n > 1)
        down(n - 1);
}

void *beside(void *argument)
{
    sleeps(30);
    inner();
    return argument;
}

static long long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ll + time.tv_nsec;
}

static long long began;

__attribute__((constructor)) static void begin(void)
{
    began = now();
}

/* Outside of main, which is measured, too. */
__attribute__((destructor)) static void end(void)
{
    FILE *times = fopen("times", "w");
    fprintf(times, "%lld\n", now() - began);
    fclose(times);
}

int main(void)
{
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, beside, NULL);
    for (int i = 0; i < 3; i++)
        outer();
    down(10);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    puts("took");
    return 0;
}
