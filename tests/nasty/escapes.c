/* Names that try to act on a terminal: of procedures, of a thread, of the file, in the arguments. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>

volatile uint64_t sink;

/* ESC [ 31 m; the C1 control CSI in UTF-8; a right-to-left override; a line of its own. */
__attribute__((noinline)) void red(void) __asm__("\"red\033[31m\"");
__attribute__((noinline)) void single(void) __asm__("\"single\302\2332J\"");
__attribute__((noinline)) void turned(void) __asm__("\"turned\342\200\256\"");

__attribute__((noinline)) void turned(void)
{
    for (long i = 0; i < 60000000; i++)
        sink = sink * 6364136223846793005u + 1;
    __asm__ volatile("");
}

__attribute__((noinline)) void single(void)
{
    turned();
    __asm__ volatile("");
}

__attribute__((noinline)) void red(void)
{
    single();
    __asm__ volatile("");
}

static void *thread(void *unused)
{
    pthread_setname_np(pthread_self(), "t\033]0;x\007\n9%");
    red();
    return unused;
}

int main(void)
{
    pthread_t id;
    red();
    if (pthread_create(&id, 0, thread, 0) || pthread_join(id, 0))
        return 1;
    puts("named");
    return 0;
}
