/* Works and sleeps: argv[1] times 10 ms, in a procedure of its own each. */
#include <stdlib.h>
#include <time.h>

#define APART __attribute__((noinline, noclone))

static volatile unsigned long sink;

APART void works(int times) {
    for (unsigned long i = 0; i < times * 4000000ul; i++)
        sink += i;
}

APART void sleeps(int times) {
    struct timespec rest = {.tv_nsec = 10000000};
    for (int i = 0; i < times; i++)
        nanosleep(&rest, NULL);
}

int main(int count, char **words) {
    int times = count > 1 ? atoi(words[1]) : 1;
    works(times);
    sleeps(times);
    return 0;
}
