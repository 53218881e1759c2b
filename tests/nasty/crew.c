/* Threads that call: crew eight | brief | asked.
 *   eight  8 threads at once; threads: all their calls are known by path (truth.h)
 *   brief  200 threads that come and go, up to 10 at a time
 *   asked  [ARRANGEMENT] 8 threads call, and sleep now and then, until the input ends; for each line `count` it says how often leaf and step were called, as one
 *          line. The first line of its output names the addresses of leaf and step. At last, whether all was right. */
#include "truth.h"
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>

struct worker {
    pthread_t thread;
    long number;
    volatile unsigned long leaves, steps, sum;
    char pad[64];
};

static struct worker workers[200];
static volatile int over;

unsigned long leaf(struct worker *worker, unsigned long n)
{
    worker->leaves++;
    worker->sum += n * n;
    return n + 1;
}

unsigned long step(struct worker *worker, unsigned long n)
{
    worker->steps++;
    unsigned long result = leaf(worker, n);
    return n % 3 ? leaf(worker, result) : result;
}

void known_leaf(long n)
{
    ENTERED;
    if (n % 64 == 0)
        sched_yield();
    LEFT;
}

void known_step(long n)
{
    ENTERED;
    if (n % 3)
        known_leaf(n);
    if (n % 5 == 0)
        known_step(n + 1);
    LEFT;
}

void *works(void *argument)
{
    ENTERED;
    struct worker *worker = argument;
    for (long n = 0; n < 20000 + worker->number; n++)
        known_step(n);
    LEFT;
    return NULL;
}

void *is_brief(void *argument)
{
    ENTERED;
    struct worker *worker = argument;
    for (long n = 0; n < 1 + worker->number % 7; n++)
        known_step(n);
    LEFT;
    return NULL;
}

void *goes_on(void *argument)
{
    struct worker *worker = argument;
    for (unsigned long n = 0; !over; n++) {
        step(worker, n);
        /* Others want the processor, too. */
        if (n % 16384 == 0)
            usleep(1000);
    }
    return NULL;
}

static unsigned long wanted(const struct worker *worker)
{
    unsigned long sum = 0;
    for (unsigned long n = 0; n < worker->steps; n++)
        sum += n % 3 ? n * n + (n + 1) * (n + 1) : n * n;
    return sum;
}

/* What a process may have arranged for itself. */
static void arrange(const char *what)
{
    struct rlimit little = {1 << 20, 1 << 20}, few = {3, 3};
    int failed = 0;
    if (!strcmp(what, "locked"))
        failed = mlockall(MCL_FUTURE);
    else if (!strcmp(what, "narrow"))
        failed = setrlimit(RLIMIT_AS, &little);
    else if (!strcmp(what, "poor")) {
        /* Enough for an object, not for what each thread keeps. */
        char line[256];
        FILE *status = fopen("/proc/self/status", "r");
        while (fgets(line, sizeof line, status))
            if (sscanf(line, "VmData: %lu", &little.rlim_cur) == 1)
                little.rlim_cur = (little.rlim_cur + 400) << 10;
        fclose(status);
        little.rlim_max = little.rlim_cur;
        failed = setrlimit(RLIMIT_DATA, &little);
    }
    else if (!strcmp(what, "few"))
        failed = setrlimit(RLIMIT_NOFILE, &few);
    else if (!strcmp(what, "huge"))
        failed = madvise(aligned_alloc(2 << 20, 64 << 20), 64 << 20, MADV_HUGEPAGE);
    else if (!strcmp(what, "fixed"))
        /* PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN */
        failed = prctl(65, 1, 0, 0, 0);
    if (failed) {
        perror(what);
        exit(9);
    }
}

static int asked(const char *arrangement)
{
    printf("leaf %p step %p\n", (void *)leaf, (void *)step);
    fflush(stdout);
    for (int i = 0; i < 8; i++)
        pthread_create(&workers[i].thread, NULL, goes_on, &workers[i]);
    arrange(arrangement);
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        unsigned long leaves = 0, steps = 0;
        for (int i = 0; i < 8; i++)
            leaves += workers[i].leaves, steps += workers[i].steps;
        printf("%lu %lu\n", leaves, steps);
        fflush(stdout);
    }
    over = 1;
    int right = 1;
    for (int i = 0; i < 8; i++) {
        pthread_join(workers[i].thread, NULL);
        unsigned long n = workers[i].steps;
        right &= workers[i].sum == wanted(&workers[i]) && workers[i].leaves == n + n - (n + 2) / 3;
    }
    printf("%s\n", right ? "all is right" : "something is wrong");
    return right ? 7 : 1;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    if (!strcmp(mode, "asked"))
        return asked(argc > 2 ? argv[2] : "");
    int brief = !strcmp(mode, "brief"), count = brief ? 200 : 8;
    for (int i = 0; i < count; i++) {
        if (brief && i >= 10)
            pthread_join(workers[i - 10].thread, NULL);
        workers[i].number = i;
        if (pthread_create(&workers[i].thread, NULL, brief ? is_brief : works, &workers[i]))
            return 1;
    }
    for (int i = brief ? count - 10 : 0; i < count; i++)
        pthread_join(workers[i].thread, NULL);
    truth_write();
    puts("done");
    return 0;
}
