/* Executes itself by `syscall`, by number, so many times: by_number TIMES. main -> work */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

extern char **environ;
volatile unsigned long sink;

__attribute__((noinline)) static void work(unsigned long rounds)
{
    for (unsigned long i = 0; i < rounds; i++)
        sink += i;
}

int main(int argc, char **argv)
{
    int times = argc > 1 ? atoi(argv[1]) : 0;
    /* Each time another part of a clock's period: some calls are interrupted. */
    work(300000 + 23456 * (unsigned long)times);
    if (times == 0) {
        puts("arrived");
        return 7;
    }
    char next[16];
    snprintf(next, sizeof next, "%d", times - 1);
    char *arguments[] = {argv[0], next, NULL};
    if (times % 2)
        syscall(SYS_execve, argv[0], arguments, environ);
    else
        syscall(SYS_execveat, -1, argv[0], arguments, environ, 0);
    perror("by_number");
    return 1;
}
