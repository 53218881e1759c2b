/* Known call paths, which a map of call paths can tell from how high the stack is, or cannot.
   argv[1]: how much work. */
#define _GNU_SOURCE
#include <alloca.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define APART __attribute__((noinline, noclone))

static volatile unsigned sink;
static unsigned rounds;

APART void work(unsigned salt) {
    unsigned sum = salt;
    for (unsigned i = 0; i < rounds * 1000; i++)
        sum = sum * 31 + (i ^ sum >> 3);
    sink += sum;
}

/* The same, at heights that no map can know: what is called there is not told for sure anywhere else. */
APART void work_anywhere(unsigned salt) {
    unsigned sum = salt;
    for (unsigned i = 0; i < rounds * 1000; i++)
        sum = sum * 37 + (i ^ sum >> 3);
    sink += sum;
}

/* Frames of different sizes. */
APART void thin(unsigned salt) {
    volatile char own[24];
    own[0] = salt;
    work(salt);
    sink += own[0];
}

APART void thick(unsigned salt) {
    volatile char own[1000];
    own[0] = salt;
    work(salt);
    sink += own[0];
}

/* Frames of one size: only what is around the call differs. */
APART void left(unsigned salt) {
    volatile char own[200];
    own[0] = salt;
    work(salt);
    sink += own[0];
}

APART void right(unsigned salt) {
    volatile char own[200];
    own[0] = salt + 1;
    work(salt + 1);
    sink += own[0];
}

/* The same procedures in another order: no size of their frames could tell the paths apart. */
APART void below(unsigned salt, int turns);

APART void above(unsigned salt, int turns) {
    volatile char own[320];
    own[0] = salt;
    if (turns > 0)
        below(salt, turns - 1);
    else
        work(salt);
    sink += own[0];
}

APART void below(unsigned salt, int turns) {
    volatile char own[480];
    own[0] = salt;
    if (turns > 0)
        above(salt, turns - 1);
    else
        work(salt);
    sink += own[0];
}

APART void down(int depth) {
    volatile char own[64];
    own[0] = depth;
    if (depth > 0)
        down(depth - 1);
    else
        work(depth);
    sink += own[0];
}

/* Arguments on the stack. */
APART void many(int a, int b, int c, int d, int e, int f, int g, int h, int i) {
    work(a + b + c + d + e + f + g + h + i);
    sink += i;
}

APART void many_called(int salt) {
    many(salt, 2, 3, 4, 5, 6, salt, 8, 9);
    sink += salt;
}

/* Leaves no frame. */
APART void jumps(unsigned salt) {
    sink += salt;
    work(salt);
}

APART void by_pointer(void (*called)(unsigned), unsigned salt) {
    volatile char own[720];
    own[0] = salt;
    called(salt);
    sink += own[0];
}

/* Memory of a computed length. */
APART void varies(unsigned len) {
    volatile char *own = alloca(len);
    own[0] = len;
    work_anywhere(len);
    sink += own[0];
}

static jmp_buf far;

APART void leaps(unsigned salt) {
    volatile char own[1500];
    own[0] = salt;
    work(salt);
    longjmp(far, 1);
}

static void handler(int number) {
    work_anywhere(number);
}

static void *thread_begins(void *salt) {
    thin((unsigned)(size_t)salt);
    thick(1);
    return NULL;
}

int main(int count, char **words) {
    rounds = count > 1 ? atoi(words[1]) : 1;
    thin(1);
    thick(2);
    left(3);
    right(4);
    above(5, 1);
    below(6, 1);
    down(0);
    down(7);
    many_called(7);
    jumps(8);
    by_pointer(work, 9);
    by_pointer(thin, 10);
    varies(64 + 16 * (rounds % 7));
    varies(4096);
    if (setjmp(far) == 0)
        leaps(11);
    thin(12);
    signal(SIGUSR1, handler);
    raise(SIGUSR1);
    /* On a stack of its own. */
    static char stack[1 << 16];
    stack_t own = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    sigaltstack(&own, NULL);
    sigaction(SIGUSR2, &action, NULL);
    raise(SIGUSR2);
    pthread_t thread;
    pthread_create(&thread, NULL, thread_begins, (void *)13);
    pthread_join(thread, NULL);
    printf("done\n");
    return 3;
}
