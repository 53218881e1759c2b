/* In company: threads that allocate, a signal's handler, a library loaded for itself alone. company MODE [LIBRARY]:
 *   churn     three threads that allocate and free
 *   handler   a handler for SIGUSR1 and one thread, counted by a preloaded object if there is one
 *   deep      a library loaded with RTLD_DEEPBIND, which makes a thread and installs a handler past every preloaded object
 *   free      heap-use-after-free, for AddressSanitizer; without it nothing is seen
 *   clean     what a sanitizer has nothing to say about */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

volatile uint64_t sink;
static volatile sig_atomic_t caught;

/* Defined by the preloaded object of tests/nasty/companion.c. */
__attribute__((weak)) void companion_counts(int *actions, int *threads);

#ifdef OWN_OPTIONS
const char *__asan_default_options(void)
{
    return "exitcode=9";
}
#endif

__attribute__((noinline)) static void on_signal(int signal)
{
    caught = signal;
}

__attribute__((noinline)) void *churn(void *seed)
{
    unsigned state = (uintptr_t)seed;
    void *kept[64] = {0};
    for (int i = 0; i < 4000000; i++) {
        state = state * 1103515245 + 12345;
        int at = state >> 16 & 63;
        free(kept[at]);
        kept[at] = malloc(16 + (state >> 8 & 4095));
        memset(kept[at], 1, 8);
    }
    for (int i = 0; i < 64; i++)
        free(kept[i]);
    return 0;
}

__attribute__((noinline)) void *spin(void *rounds)
{
    char *bytes = malloc(1000);
    for (long i = 0; i < (long)rounds; i++) {
        bytes[i % 1000] += i;
        sink += bytes[i * 7 % 1000];
    }
    free(bytes);
    return 0;
}

static void threads(int count, void *(*work)(void *), long argument)
{
    pthread_t made[8];
    for (int i = 0; i < count; i++)
        pthread_create(&made[i], 0, work, (void *)(argument + i));
    for (int i = 0; i < count; i++)
        pthread_join(made[i], 0);
}

static void handle(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    sigaction(SIGUSR1, &action, 0);
    raise(SIGUSR1);
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "clean";
    if (!strcmp(mode, "churn")) {
        threads(3, churn, 1);
    } else if (!strcmp(mode, "deep")) {
        void *library = dlopen(argv[2], RTLD_NOW | RTLD_DEEPBIND);
        if (!library) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
        int (*run)(void) = (int (*)(void))dlsym(library, "deep_run");
        printf("deep %d\n", run());
    } else {
        handle();
        threads(1, spin, 60000000);
    }
    if (companion_counts) {
        int actions, made;
        companion_counts(&actions, &made);
        printf("actions %d, threads %d\n", actions, made);
    }
    printf("%s, caught %d\n", mode, caught);
    fflush(stdout);
    if (!strcmp(mode, "free")) {
        char *bytes = malloc(10);
        free(bytes);
        return bytes[argc] & 1;
    }
    return 4;
}
