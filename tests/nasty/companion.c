/* A second preloaded object, which stands before the same functions as callpath and counts their calls. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

static int actions, threads_made;

void companion_counts(int *a, int *t)
{
    *a = actions;
    *t = threads_made;
}

int sigaction(int signal, const struct sigaction *new, struct sigaction *old)
{
    int (*real)(int, const struct sigaction *, struct sigaction *) = dlsym(RTLD_NEXT, "sigaction");
    __atomic_fetch_add(&actions, 1, __ATOMIC_RELAXED);
    return real(signal, new, old);
}

struct start {
    void *(*routine)(void *);
    void *argument;
};

__attribute__((noinline)) void *companion_start(void *packed)
{
    struct start start = *(struct start *)packed;
    free(packed);
    void *result = start.routine(start.argument);
    __asm__ volatile("");
    return result;
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*routine)(void *), void *argument)
{
    int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = dlsym(RTLD_NEXT, "pthread_create");
    __atomic_fetch_add(&threads_made, 1, __ATOMIC_RELAXED);
    struct start *packed = malloc(sizeof *packed);
    packed->routine = routine;
    packed->argument = argument;
    return real(thread, attributes, companion_start, packed);
}

void *malloc(size_t bytes)
{
    static void *(*real)(size_t);
    if (!real)
        real = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
    return real(bytes);
}
