/* Many threads at once: sleepers ASLEEP BUSY SECONDS.
 * ASLEEP of them wait until the end, BUSY work until then. It prints how many there were. */
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static volatile int end;
volatile uint64_t sink;
static sem_t over;

static void *sleeper(void *unused)
{
    sem_wait(&over);
    return unused;
}

static void *worker(void *unused)
{
    uint64_t x = 1;
    while (!end)
        x = x * 6364136223846793005u + 1;
    sink = x;
    return unused;
}

int main(int argc, char **argv)
{
    int asleep = argc > 1 ? atoi(argv[1]) : 10, busy = argc > 2 ? atoi(argv[2]) : 1, made = 0;
    pthread_t *threads = calloc(asleep + busy, sizeof *threads);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 65536);
    sem_init(&over, 0, 0);
    for (int i = 0; i < asleep + busy; i++)
        made += !pthread_create(threads + i, &attributes, i < asleep ? sleeper : worker, 0);
    sleep(argc > 3 ? atoi(argv[3]) : 1);
    end = 1;
    for (int i = 0; i < asleep; i++)
        sem_post(&over);
    for (int i = 0; i < asleep + busy; i++)
        pthread_join(threads[i], 0);
    printf("%d threads\n", made);
    return 0;
}
