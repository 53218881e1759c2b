/* A signal handler that returns to code of the program's own (SA_RESTORER), which has no unwind information and stands
 * directly behind another procedure, as in Go's runtime: own_restorer MILLISECONDS. The handler does all of the work:
 * main -> interrupted -> own_restorer -> handler -> work. */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void own_restorer(void);
__asm__(".text\n"
        ".type stands_before, @function\n"
        "stands_before:\n"
        "  jmp *%rax\n"
        "  .skip 6, 0xcc\n"
        ".size stands_before, .-stands_before\n"
        ".type own_restorer, @function\n"
        "own_restorer:\n"
        "  mov $15, %rax\n"
        "  syscall\n"
        ".size own_restorer, .-own_restorer\n");

volatile uint64_t sink;

__attribute__((noinline)) void work(void)
{
    uint64_t x = sink;
    for (int i = 0; i < 200000; i++)
        x = x * 6364136223846793005u + 1;
    sink = x;
}

void handler(int number)
{
    (void)number;
    for (int i = 0; i < 20; i++)
        work();
    sink++;
}

__attribute__((noinline)) void interrupted(long ms)
{
    struct timespec start, now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &start);
    do {
        kill(getpid(), SIGUSR1);
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    } while ((now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000 < ms);
    sink++;
}

int main(int argc, char **argv)
{
    struct {
        void (*handler)(int);
        unsigned long flags;
        void (*restorer)(void);
        uint64_t mask;
    } action = {handler, 0x04000000 /* SA_RESTORER */, own_restorer, 0};
    if (syscall(SYS_rt_sigaction, SIGUSR1, &action, NULL, sizeof action.mask) != 0)
        return 1;
    interrupted(argc > 1 ? atol(argv[1]) : 300);
    puts("done");
    return 0;
}
