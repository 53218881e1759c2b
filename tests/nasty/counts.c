/* Says "ready", works until it gets a signal, works some more, and says which signals came and how often. */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

static volatile int counts[65], any;
volatile uint64_t sink;

static void on_signal(int signal)
{
    counts[signal]++;
    any = 1;
}

__attribute__((noinline)) void count_work(long ms, int until_signal)
{
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    do {
        for (int i = 0; i < 20000; i++)
            sink = sink * 6364136223846793005u + 1;
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000 < ms && !(until_signal && any));
}

int main(void)
{
    static const struct {
        int number;
        const char *name;
    } known[] = {{SIGINT, "SIGINT"}, {SIGQUIT, "SIGQUIT"}, {SIGTERM, "SIGTERM"}, {SIGHUP, "SIGHUP"}};
    for (int i = 0; i < 4; i++)
        signal(known[i].number, on_signal);
    printf("ready\n");
    fflush(stdout);
    count_work(20000, 1);
    count_work(300, 0);
    for (int i = 0; i < 4; i++)
        if (counts[known[i].number])
            printf("%s %d\n", known[i].name, counts[known[i].number]);
    return 8;
}
