/* Threads of several kinds, named after what they do and numbered: `kinds THREADS MILLISECONDS`.
 *
 * Every third is `io-N` and runs cold, the others are `worker-N` and run hot, twice as long. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static long milliseconds;

static long spent_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void burn(long until_ms) {
    while (spent_ms() < until_ms)
        for (volatile int i = 0; i < 20000; i++)
            ;
}

static void hot(void) { burn(2 * milliseconds); }

static void cold(void) { burn(milliseconds); }

static void *work(void *number) {
    char name[16];
    int is_cold = (long)number % 3 == 0;
    snprintf(name, sizeof name, "%s-%ld", is_cold ? "io" : "worker", (long)number % 100000);
    pthread_setname_np(pthread_self(), name);
    if (is_cold)
        cold();
    else
        hot();
    return NULL;
}

int main(int argc, char **argv) {
    long threads = argc > 2 ? atol(argv[1]) : 0;
    if (threads <= 0 || threads > 256)
        return 2;
    milliseconds = atol(argv[2]);
    pthread_t started[256];
    for (long i = 0; i < threads; i++)
        if (pthread_create(&started[i], NULL, work, (void *)i))
            return 3;
    for (long i = 0; i < threads; i++)
        pthread_join(started[i], NULL);
    puts("joined");
    return 0;
}
