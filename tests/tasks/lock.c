/* Eight threads, each of which computes a little and then waits for one lock, which is held while a journal is written: append_entry waits. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define THREADS 8

static pthread_mutex_t journal_lock = PTHREAD_MUTEX_INITIALIZER;
static long entries;

static void write_journal(void)
{
    struct timespec pause = { .tv_nsec = 1000000 };
    nanosleep(&pause, NULL);
    entries++;
}

static void append_entry(void)
{
    pthread_mutex_lock(&journal_lock);
    write_journal();
    pthread_mutex_unlock(&journal_lock);
}

static double prepare(double value)
{
    for (int i = 0; i < 20000; i++)
        value = value * 0.99 + i;
    return value;
}

static void *serve(void *rounds)
{
    volatile double value = 1;
    for (long i = 0; i < (long)rounds; i++) {
        value = prepare(value);
        append_entry();
    }
    return NULL;
}

int main(int count, char **arguments)
{
    long rounds = count > 1 ? atol(arguments[1]) : 150;
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, serve, (void *)rounds);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    printf("%ld entries\n", entries);
    return 0;
}
