/* Lets a child run calls of leaf() with the trap flag: after each instruction, also of copies, of what copies call and of
   the jumps between, a handler calls inner(). Says how often it did. A call that finds something new holds signals back,
   which ends a process that runs by single steps: then another child tries, with its stack elsewhere. Status 8. */
#include <alloca.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile unsigned long calls, sink;

__attribute__((noinline)) void inner(void)
{
    calls++;
    __asm__ volatile("" ::: "memory");
}

__attribute__((noinline)) unsigned long leaf(unsigned long n)
{
    sink += n;
    return sink;
}

static void stepped(int signal)
{
    (void)signal;
    inner();
}

static inline __attribute__((always_inline)) void trap(int on)
{
    if (on)
        __asm__ volatile("pushfq; orq $0x100, (%%rsp); popfq" ::: "memory", "cc");
    else
        __asm__ volatile("pushfq; andq $~0x100, (%%rsp); popfq" ::: "memory", "cc");
}

static void run(int number)
{
    volatile char *elsewhere = alloca(48 * number + 16);
    elsewhere[0] = 0;
    struct sigaction action = {.sa_handler = stepped};
    sigaction(SIGTRAP, &action, NULL);
    /* Every other time without: what is known of this call is known again. */
    for (int i = 0; i < 8; i++) {
        trap(i & 1);
        leaf(i);
        trap(0);
    }
    printf("inner %lu\n", calls);
    fflush(stdout);
    _exit(0);
}

int main(void)
{
    enum { TRIES = 20, ENOUGH = 3 };
    int done = 0;
    for (int number = 0; number < TRIES && done < ENOUGH; number++) {
        int status = 0;
        pid_t child = fork();
        if (child == 0)
            run(number);
        waitpid(child, &status, 0);
        done += WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    return done == ENOUGH ? 8 : 1;
}
