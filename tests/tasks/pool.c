/* A pool of 24 named threads that take cells from a queue. One branch of what they do is hot: collide. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define THREADS 24
#define CELLS 4096

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long next_cell, cells;
static uint64_t sums[CELLS];

static uint64_t mix(uint64_t state)
{
    state ^= state << 13;
    state ^= state >> 7;
    return state ^ state << 17;
}

static uint64_t collide(uint64_t state)
{
    for (int i = 0; i < 20000; i++)
        state = mix(state) + i;
    return state;
}

static uint64_t stream(uint64_t state)
{
    for (int i = 0; i < 2000; i++)
        state = mix(state) - i;
    return state;
}

static uint64_t step_cell(long cell)
{
    uint64_t state = cell * 2654435761u + 1;
    return cell % 8 == 7 ? stream(state) : collide(state);
}

static void *worker(void *unused)
{
    for (;;) {
        pthread_mutex_lock(&lock);
        long cell = next_cell++;
        pthread_mutex_unlock(&lock);
        if (cell >= cells)
            return unused;
        sums[cell % CELLS] += step_cell(cell);
    }
}

int main(int count, char **arguments)
{
    cells = count > 1 ? atol(arguments[1]) : 20000;
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        char name[16];
        snprintf(name, sizeof name, "worker-%d", i);
        pthread_create(&threads[i], NULL, worker, NULL);
        pthread_setname_np(threads[i], name);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    uint64_t sum = 0;
    for (int i = 0; i < CELLS; i++)
        sum += sums[i];
    printf("%lu\n", (unsigned long)sum);
    return 0;
}
