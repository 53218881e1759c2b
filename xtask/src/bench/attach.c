// Threads of a program with many libraries. Two are busy, each 10 ms in another procedure: whoever samples them sees when. A line on standard
// input is answered with the longest time between two readings of the clock since the last one, microseconds.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define BUSY 2
#define SLOT_NS 10000000
#define SLOTS 400

static atomic_ulong longest_ns;

static unsigned long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000UL + time.tv_nsec;
}

static inline __attribute__((always_inline)) void stay(unsigned long slot) {
    unsigned long before = now();
    for (unsigned long at = before; at / SLOT_NS % SLOTS == slot; before = at) {
        at = now();
        if (at - before > longest_ns) longest_ns = at - before;
    }
}

#define AT(n) static __attribute__((noinline, noclone)) void at_##n(void) { stay(1##n - 1000); }
#define TEN(n) AT(n##0) AT(n##1) AT(n##2) AT(n##3) AT(n##4) AT(n##5) AT(n##6) AT(n##7) AT(n##8) AT(n##9)
#define HUNDRED(n) TEN(n##0) TEN(n##1) TEN(n##2) TEN(n##3) TEN(n##4) TEN(n##5) TEN(n##6) TEN(n##7) TEN(n##8) TEN(n##9)
HUNDRED(0) HUNDRED(1) HUNDRED(2) HUNDRED(3)
#undef AT
#define AT(n) at_##n,
static void (*const all[SLOTS])(void) = { HUNDRED(0) HUNDRED(1) HUNDRED(2) HUNDRED(3) };

static void *run(void *number) {
    for (;;) {
        if ((long)number < BUSY) all[now() / SLOT_NS % SLOTS]();
        else usleep(100000);
    }
    return NULL;
}

int main(int count, char **words) {
    long threads = count > 1 ? atol(words[1]) : 0;
    for (int library = 2; library < count; library++)
        if (!dlopen(words[library], RTLD_NOW)) return 1;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 256 << 10);
    for (long number = 0; number < threads; number++) {
        pthread_t thread;
        if (pthread_create(&thread, &attributes, run, (void *)number)) return 2;
    }
    puts("ready");
    fflush(stdout);
    while (getchar() == '\n') {
        printf("%lu\n", atomic_exchange(&longest_ns, 0) / 1000);
        fflush(stdout);
    }
    return 0;
}
