/* Time in a library whose recipe table takes long to make: late LIBRARY MILLISECONDS ROUNDS DEPTH.
 * In each round a thread loads the library, goes DEPTH frames of half a kilobyte down, works in it and for it, unloads it, and
 * ends. The hazards: samples that come before the table, of threads that have ended, in a library that is gone, in a program
 * that has ended by then, with stacks of hundreds of kilobytes. With ROUNDS 0 it works there once, and does not unload it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static const char *library;
static long wanted_ns;
static int depth, keeps;
static __thread long end_ns;

static long cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

__attribute__((noinline)) int work(void)
{
    for (volatile int i = 0; i < 2000; i++)
        ;
    return cpu_ns() < end_ns;
}

typedef void Run(int (*)(void));

/* Samples here have whole paths, and may mark return addresses, which the raw samples of later then have on their stacks. */
__attribute__((noinline)) static void settle(void)
{
    long until = cpu_ns() + wanted_ns / 10;
    while (cpu_ns() < until)
        for (volatile int i = 0; i < 2000; i++)
            ;
    end_ns = cpu_ns() + wanted_ns;
}

__attribute__((noinline)) static int down(int frames, Run *run)
{
    volatile char room[512];
    room[0] = 1;
    if (frames == 0) {
        settle();
        run(work);
    }
    else
        room[0] += down(frames - 1, run);
    return room[0];
}

static void *use(void *unused)
{
    void *handle = dlopen(library, RTLD_NOW);
    if (!handle) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    Run *run = (Run *)dlsym(handle, "large_run");
    down(depth, run);
    if (!keeps)
        dlclose(handle);
    return unused;
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    library = argv[1];
    wanted_ns = atol(argv[2]) * 1000000;
    depth = atoi(argv[4]);
    keeps = atoi(argv[3]) == 0;
    for (int i = 0; i < atoi(argv[3]) + keeps; i++) {
        pthread_t thread;
        if (pthread_create(&thread, 0, use, 0) || pthread_join(thread, 0))
            return 1;
    }
    puts("done");
    return 0;
}
