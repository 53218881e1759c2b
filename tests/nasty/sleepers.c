/* Many threads at once: sleepers ASLEEP BUSY SECONDS [parent].
 * ASLEEP of them wait until the end, BUSY work until then. It prints how many there were.
 * parent: from the third second on it has the kernel look at all threads, ten times a second: it asks for the sum of their
 * CPU time. At the end it prints to standard error what CPU time its parent's first thread has used in these seconds, and
 * what ten looks have cost, nanoseconds. */
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
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

static uint64_t used_ns(clockid_t clock)
{
    struct timespec used = {0, 0};
    clock_gettime(clock, &used);
    return used.tv_sec * 1000000000ull + used.tv_nsec;
}

static uint64_t used_by_parent_ns(void)
{
    char path[64];
    unsigned long long used = 0;
    snprintf(path, sizeof path, "/proc/%d/schedstat", getppid());
    FILE *file = fopen(path, "r");
    if (!file || fscanf(file, "%llu", &used) != 1)
        perror(path);
    if (file)
        fclose(file);
    return used;
}

static void watch_parent(int seconds)
{
    /* By then it knows them all. */
    sleep(2);
    uint64_t before_ns = used_by_parent_ns(), looks_ns = 0;
    for (int look = 0; look < seconds * 10; look++) {
        usleep(100000);
        uint64_t begin_ns = used_ns(CLOCK_THREAD_CPUTIME_ID);
        used_ns(CLOCK_PROCESS_CPUTIME_ID);
        looks_ns += used_ns(CLOCK_THREAD_CPUTIME_ID) - begin_ns;
    }
    uint64_t by_parent_ns = used_by_parent_ns() - before_ns;
    fprintf(stderr, "%llu %llu\n", (unsigned long long)by_parent_ns,
            (unsigned long long)(looks_ns / (seconds > 0 ? seconds : 1)));
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
    int seconds = argc > 3 ? atoi(argv[3]) : 1;
    if (argc > 4 && !strcmp(argv[4], "parent"))
        watch_parent(seconds);
    else
        sleep(seconds);
    end = 1;
    for (int i = 0; i < asleep; i++)
        sem_post(&over);
    for (int i = 0; i < asleep + busy; i++)
        pthread_join(threads[i], 0);
    printf("%d threads\n", made);
    return 0;
}
