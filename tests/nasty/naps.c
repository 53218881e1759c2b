/* Threads that wait: naps ROUNDS. The first naps with a lock and without it, and works; the second wants the lock; the third waits
 * for good. Says "ready" when it waits. */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile unsigned long sink;

static __attribute__((noinline)) void work(void)
{
    for (int i = 0; i < 1000000; i++)
        sink += i;
}

static __attribute__((noinline)) void naps(int milliseconds)
{
    poll(NULL, 0, milliseconds);
    sink++;
}

static __attribute__((noinline)) void holds(int milliseconds)
{
    /* Nobody uses the middle: its pages are not in memory. */
    volatile char room[20000];
    room[0] = room[sizeof room - 1] = (char)milliseconds;
    pthread_mutex_lock(&lock);
    naps(milliseconds);
    pthread_mutex_unlock(&lock);
    sink += room[0];
}

static __attribute__((noinline)) void wants(void)
{
    pthread_mutex_lock(&lock);
    sink++;
    pthread_mutex_unlock(&lock);
    sink++;
}

static void *other(void *unused)
{
    for (;;) {
        usleep(2000);
        wants();
    }
    return unused;
}

static __attribute__((noinline)) void *waits_for_good(void *unused)
{
    for (;;)
        pause();
    return unused;
}

int main(int argc, char **argv)
{
    long rounds = argc > 1 ? atol(argv[1]) : 10;
    pthread_t thread;
    pthread_create(&thread, NULL, waits_for_good, NULL);
    pthread_create(&thread, NULL, other, NULL);
    usleep(20000);
    puts("ready");
    fflush(stdout);
    for (long i = 0; i < rounds; i++) {
        holds(10);
        work();
        naps(5);
    }
    _exit(4);
}
