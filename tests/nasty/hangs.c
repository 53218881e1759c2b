/* Threads that wait for ever, in a program that ends all the same: hangs MODE MILLISECONDS.
 *   end       three wait for a condition; main sleeps and returns
 *   deadlock  two wait for each other's mutex; SIGINT ends the program
 *   killed    as end, but SIGKILL ends it
 *   names     three that work until the program ends have names: one's own choice, one that main gave it, one by prctl
 * It says on stderr how long they had waited, nanoseconds, all together. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t mutexes[2] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t barrier;
static volatile uint64_t sink;

static long now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

__attribute__((noinline)) static void wait_for_ever(void)
{
    pthread_mutex_lock(&mutexes[0]);
    for (;;)
        pthread_cond_wait(&never, &mutexes[0]);
}

__attribute__((noinline)) static void lock_both(int first)
{
    pthread_mutex_lock(&mutexes[first]);
    pthread_barrier_wait(&barrier);
    pthread_mutex_lock(&mutexes[1 - first]);
}

static void *waiter(void *unused)
{
    wait_for_ever();
    return unused;
}

static void *locker(void *first)
{
    lock_both((int)(intptr_t)first);
    return first;
}

static void *worker(void *how)
{
    if ((intptr_t)how == 0)
        pthread_setname_np(pthread_self(), "by itself");
    if ((intptr_t)how == 2)
        prctl(PR_SET_NAME, "by prctl");
    for (;;)
        sink++;
    return how;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    const char *mode = argv[1];
    int deadlock = !strcmp(mode, "deadlock"), names = !strcmp(mode, "names"), count = deadlock ? 2 : 3;
    pthread_barrier_init(&barrier, 0, 2);
    long begin = now_ns();
    pthread_t threads[3];
    for (int i = 0; i < count; i++)
        if (pthread_create(threads + i, 0, names ? worker : deadlock ? locker : waiter, (void *)(intptr_t)i))
            return 1;
    if (names)
        pthread_setname_np(threads[1], "by main");
    usleep(atol(argv[2]) * 1000);
    fprintf(stderr, "waited: %ld\n", (now_ns() - begin) * count);
    if (deadlock)
        signal(SIGINT, SIG_DFL), raise(SIGINT);
    if (!strcmp(mode, "killed"))
        kill(getpid(), SIGKILL);
    return 0;
}
