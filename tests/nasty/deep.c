/* Recursion: deep THREADS DEPTH WORK. Each thread goes DEPTH frames deep and works there for WORK million steps.
 * The hazard: walks that are cut, or that take longer than the time between two samples. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static uint64_t steps;

__attribute__((noinline)) uint64_t bottom(uint64_t x)
{
    for (uint64_t i = 0; i < steps; i++)
        x = x * 6364136223846793005u + 1442695040888963407u;
    return x;
}

__attribute__((noinline)) uint64_t descend(uint64_t x, long depth)
{
    return (depth > 1 ? descend(x + 1, depth - 1) : bottom(x)) ^ depth;
}

static void *work(void *depth)
{
    return (void *)(uintptr_t)descend(1, *(long *)depth);
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    int threads = atoi(argv[1]);
    long depth = atol(argv[2]);
    steps = strtoull(argv[3], 0, 10) * 1000000;
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, (size_t)depth * 128 + (1 << 20));
    pthread_t ids[64];
    uint64_t sum = 0;
    for (int i = 0; i < threads && i < 64; i++)
        if (pthread_create(&ids[i], &attr, work, &depth))
            return 3;
    for (int i = 0; i < threads && i < 64; i++) {
        void *result;
        pthread_join(ids[i], &result);
        sum += (uintptr_t)result;
    }
    printf("%llu\n", (unsigned long long)sum);
    return 0;
}
