/* OpenMP regions: one that a single procedure calls, and one that two procedures call. Built with -fopenmp.
 *
 * Each thread burns CPU time of its own, so that workers and master cost the same. */
#define _GNU_SOURCE
#include <stdio.h>
#include <time.h>

static long spent_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void burn(long ms) {
    long until = spent_ms() + ms;
    while (spent_ms() < until)
        for (volatile int i = 0; i < 20000; i++)
            ;
}

static void single(void) { burn(300); }

static void shared(void) { burn(150); }

static void called_once(void) {
#pragma omp parallel num_threads(3)
    single();
}

static void called_twice(void) {
#pragma omp parallel num_threads(3)
    shared();
}

static void first(void) { called_twice(); }

static void second(void) { called_twice(); }

int main(void) {
    called_once();
    first();
    second();
    puts("done");
    return 0;
}
