/* Works for about argv[2] times 10 ms below `first`, `second` or `third`, as argv[1] says, on the main thread, then on another. The stack is as
   high below `second` as below `first`, and the calls from there on are the same. `third` has a larger frame. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define APART __attribute__((noinline, noclone))

static volatile unsigned long sink;

APART void work(long times) {
    for (unsigned long i = 0; i < times * 4000000ul; i++)
        sink += i;
}

APART void inner(long times) {
    work(times);
    sink++;
}

APART void middle(long times) {
    inner(times);
    sink++;
}

APART void first(long times) {
    middle(times);
    sink += 1;
}

APART void second(long times) {
    middle(times);
    sink += 2;
}

APART void third(long times) {
    volatile char own[600];
    own[0] = times;
    middle(times);
    sink += own[0];
}

struct asked {
    void (*which)(long);
    long times;
};

APART void run(struct asked *asked) {
    asked->which(asked->times);
    sink++;
}

static void *begin(void *asked) {
    run(asked);
    return NULL;
}

int main(int count, char **words) {
    if (count < 3)
        return 2;
    struct asked asked = {first, atol(words[2])};
    if (strcmp(words[1], "second") == 0)
        asked.which = second;
    if (strcmp(words[1], "third") == 0)
        asked.which = third;
    run(&asked);
    pthread_t thread;
    if (pthread_create(&thread, NULL, begin, &asked) != 0)
        return 1;
    pthread_join(thread, NULL);
    return 0;
}
