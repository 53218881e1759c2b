/* Time while SIGTRAP is blocked by system calls that no hook sees: masked MODE MILLISECONDS.
 *   middle     masked() runs with it blocked, then later() for a tenth as long without
 *   end        masked() runs, and the program ends
 *   thread     the same in a thread of its own, which ends by itself
 *   touches    masked() touches new pages instead, as many as milliseconds, and later() a tenth as many
 * It prints the CPU time of masked() in nanoseconds, or the pages, on stderr. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile uint64_t sink;
static long amount;
static int touches;

static long cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

__attribute__((noinline)) static void work(long how_much)
{
    if (touches) {
        volatile char *pages = mmap(0, how_much * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        madvise((void *)pages, how_much * 4096, MADV_NOHUGEPAGE);
        for (long i = 0; i < how_much; i++)
            pages[i * 4096] = 1;
        return;
    }
    /* Almost all of it in user mode: the clock is asked seldom. */
    for (long until = cpu_ns() + how_much * 1000000; cpu_ns() < until;)
        for (int i = 0; i < 20000; i++)
            sink += i;
}

static void mask(int how)
{
    uint64_t trap = 1UL << (SIGTRAP - 1);
    syscall(SYS_rt_sigprocmask, how, &trap, 0, 8);
}

__attribute__((noinline)) static void masked(void)
{
    mask(SIG_BLOCK);
    long begin = cpu_ns();
    work(amount);
    fprintf(stderr, "masked: %ld\n", touches ? amount : cpu_ns() - begin);
}

__attribute__((noinline)) static void later(void)
{
    mask(SIG_UNBLOCK);
    work(amount / 10);
}

static void *in_thread(void *unused)
{
    masked();
    return unused;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    amount = atol(argv[2]);
    touches = !strcmp(argv[1], "touches");
    if (!strcmp(argv[1], "thread")) {
        pthread_t thread;
        if (pthread_create(&thread, 0, in_thread, 0) || pthread_join(thread, 0))
            return 1;
        return 0;
    }
    masked();
    if (strcmp(argv[1], "end"))
        later();
    return 0;
}
