/* A library whose constructor makes a thread before main. The thread works until main asks for the end. */
#include <pthread.h>
#include <stdint.h>

static pthread_t early;
static volatile int asked;
volatile uint64_t early_sink;

__attribute__((noinline)) void early_work(void)
{
    while (!asked)
        early_sink = early_sink * 6364136223846793005u + 1;
}

static void *early_start(void *unused)
{
    early_work();
    return unused;
}

__attribute__((constructor)) static void made_before_main(void)
{
    pthread_create(&early, 0, early_start, 0);
}

void early_end(void)
{
    asked = 1;
    pthread_join(early, 0);
}
