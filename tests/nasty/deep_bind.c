/* A library for RTLD_DEEPBIND: what it calls is the C library's own, whatever is preloaded. */
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

volatile uint64_t deep_sink;
static volatile sig_atomic_t deep_caught;

static void deep_handler(int signal)
{
    deep_caught = signal;
}

__attribute__((noinline)) void *deep_work(void *rounds)
{
    for (long i = 0; i < (long)rounds; i++)
        deep_sink = deep_sink * 6364136223846793005u + 1;
    return 0;
}

int deep_run(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = deep_handler;
    sigaction(SIGUSR2, &action, 0);
    /* All signals are blocked past us for a while: samples wait, and the thread inherits the mask. */
    sigset_t all, before;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    sigprocmask(SIG_SETMASK, &before, 0);
    pthread_t made[2];
    for (int i = 0; i < 2; i++)
        pthread_create(&made[i], 0, deep_work, (void *)40000000);
    for (int i = 0; i < 2; i++)
        pthread_join(made[i], 0);
    raise(SIGUSR2);
    return deep_caught;
}
