/* Several stacks: coroutines that alternate (makecontext, swapcontext) while functions are active on all of them, some on
 * memory of malloc's, one on a thread; and handlers on an alternate stack. All calls are known by path. */
#define _GNU_SOURCE
#include "truth.h"
#include <pthread.h>
#include <signal.h>
#include <ucontext.h>

#define COUNT 5
#define STACK_BYTES (256 << 10)

struct weave {
    ucontext_t main, routine[COUNT];
    struct truth *here[COUNT + 1];
    int ended[COUNT];
    int now;
    unsigned long sum;
};

static __thread struct weave *weave;

/* Goes on with another one; COUNT: the first. */
static void turn(int to)
{
    struct weave *w = weave;
    int from = w->now;
    w->here[from] = truth_here;
    w->now = to;
    truth_here = w->here[to];
    swapcontext(from == COUNT ? &w->main : &w->routine[from], to == COUNT ? &w->main : &w->routine[to]);
}

void leaf(long n)
{
    ENTERED;
    weave->sum += n;
    LEFT;
}

void pauses(long n)
{
    ENTERED;
    leaf(n);
    int to = (weave->now + 1 + n % 3) % (COUNT + 1);
    if (to != weave->now && (to == COUNT || !weave->ended[to]))
        turn(to);
    leaf(n + 1);
    LEFT;
}

void deep(long n, int depth)
{
    ENTERED;
    if (depth)
        deep(n, depth - 1);
    else
        pauses(n);
    leaf(n);
    LEFT;
}

void routine(int number)
{
    truth_enter(__func__);
    for (long n = 0; n < 400; n++)
        deep(n + number, (int)(n * (number + 1) % 7));
    weave->ended[number] = 1;
    for (;;)
        turn(COUNT);
}

void *weaves(void *argument)
{
    ENTERED;
    struct weave *w = weave = calloc(1, sizeof *w);
    w->now = COUNT;
    for (int i = 0; i < COUNT; i++) {
        getcontext(&w->routine[i]);
        w->routine[i].uc_stack.ss_sp = malloc(STACK_BYTES);
        w->routine[i].uc_stack.ss_size = STACK_BYTES;
        makecontext(&w->routine[i], (void (*)(void))routine, 1, i);
    }
    for (int ended = 0; ended < COUNT;) {
        for (int i = ended = 0; i < COUNT; i++) {
            if (!w->ended[i])
                deep(i, i), turn(i);
            ended += w->ended[i];
        }
    }
    unsigned long *sum = argument;
    *sum = w->sum;
    LEFT;
    return NULL;
}

void handler(int number)
{
    ENTERED;
    static __thread struct weave own;
    struct weave *before = weave;
    weave = &own;
    leaf(number);
    weave = before;
    LEFT;
}

void raises(long n)
{
    ENTERED;
    raise(SIGUSR1);
    struct weave own = {.now = COUNT};
    weave = &own;
    leaf(n);
    LEFT;
}

int main(void)
{
    ENTERED;
    unsigned long sums[2];
    weaves(&sums[0]);
    pthread_t thread;
    pthread_create(&thread, NULL, weaves, &sums[1]);
    pthread_join(thread, NULL);
    stack_t alternate = {.ss_sp = malloc(STACK_BYTES), .ss_size = STACK_BYTES};
    sigaltstack(&alternate, NULL);
    struct sigaction act = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    sigaction(SIGUSR1, &act, NULL);
    for (long n = 0; n < 1000; n++)
        raises(n);
    LEFT;
    truth_write();
    printf("%lu %lu\n", sums[0], sums[1]);
    return 0;
}
