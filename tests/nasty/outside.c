/* What is sampled from outside: outside THREADS DEPTH. So many threads go DEPTH calls deep and work there; each line of input starts one
 * more, which works in `later`; `leave` ends the first thread alone. Says "ready" when all have begun, and ends with the input. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static volatile uint64_t sink;
static volatile int begun;

static __attribute__((noinline)) void work(void)
{
    uint64_t x = sink;
    for (int i = 0; i < 50000; i++)
        x = x * 6364136223846793005u + 1;
    sink = x;
}

static __attribute__((noinline)) int down(int depth)
{
    volatile char frame[24];
    frame[0] = (char)depth;
    if (depth == 0) {
        __sync_fetch_and_add(&begun, 1);
        for (;;)
            work();
    }
    return down(depth - 1) + frame[0];
}

static void *dig(void *depth)
{
    down((int)(intptr_t)depth);
    return NULL;
}

static __attribute__((noinline)) void *later(void *unused)
{
    for (;;)
        work();
    return unused;
}

int main(int argc, char **argv)
{
    int threads = argc > 1 ? atoi(argv[1]) : 1;
    intptr_t depth = argc > 2 ? atoi(argv[2]) : 1;
    pthread_t thread;
    for (int i = 0; i < threads; i++)
        pthread_create(&thread, NULL, dig, (void *)depth);
    while (begun < threads)
        usleep(1000);
    puts("ready");
    fflush(stdout);
    char line[16];
    while (fgets(line, sizeof line, stdin)) {
        if (line[0] == 'l') {
            puts("left");
            fflush(stdout);
            pthread_exit(NULL);
        }
        pthread_create(&thread, NULL, later, NULL);
        puts("one more");
        fflush(stdout);
    }
    puts("over");
    fflush(stdout);
    _exit(0);
}
