/* A program that forbids itself system calls by a seccomp filter: filters ACTION BY WHAT [THEN]...
 *   ACTION  trap, errno, success or kill: what the filter does with what it refuses; success: it says that it was done
 *   BY      prctl or syscall: by which of the C library's functions it is installed; itself: by none
 *   WHAT    clocks (those of a thread), samples (some of theirs), all (but three that the program needs), sigreturn
 *   THEN    nothing: works on; threads: one works since before, one begins now; exec PROGRAM...: becomes another one
 * filters work: works as after a filter, and installs none. main -> before -> work, then main -> after -> work. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

volatile unsigned long sink;
static volatile int filtered;

__attribute__((noinline)) static void work(long rounds)
{
    for (long i = 0; i < rounds; i++)
        sink += i;
}

__attribute__((noinline)) static void before(void)
{
    work(150000000);
}

__attribute__((noinline)) static void after(void)
{
    work(300000000);
}

static void *works_since(void *argument)
{
    before();
    while (!filtered)
        work(1000000);
    after();
    return argument;
}

static void *begins(void *argument)
{
    after();
    return argument;
}

/* Without the C library's buffers, which take memory. */
static void say_so(void)
{
    if (write(1, "worked\n", 7) != 7)
        _exit(5);
}

static struct sock_filter code[64];
static unsigned short len;

static void add(struct sock_filter instruction)
{
    code[len++] = instruction;
}

static void answer(int number, unsigned action)
{
    add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1));
    add((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action));
}

static long installs(struct sock_fprog *filter)
{
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(SYS_seccomp), "D"(SECCOMP_SET_MODE_FILTER), "S"(SECCOMP_FILTER_FLAG_TSYNC), "d"(filter)
                     : "rcx", "r11", "memory");
    return result;
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        after();
        say_so();
        return 6;
    }
    unsigned refuse = !strcmp(argv[1], "trap")      ? SECCOMP_RET_TRAP
                      : !strcmp(argv[1], "errno")   ? SECCOMP_RET_ERRNO | EPERM
                      : !strcmp(argv[1], "success") ? SECCOMP_RET_ERRNO
                                                    : SECCOMP_RET_KILL_PROCESS;
    const char *what = argv[3], *then = argc > 4 ? argv[4] : "";
    pthread_t since, begun;
    if (!strcmp(then, "threads"))
        pthread_create(&since, NULL, works_since, NULL);
    add((struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)));
    if (!strcmp(what, "all")) {
        int allowed[] = {SYS_rt_sigreturn, SYS_write, SYS_exit_group};
        for (size_t i = 0; i < sizeof allowed / sizeof allowed[0]; i++)
            answer(allowed[i], SECCOMP_RET_ALLOW);
        add((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, refuse));
    } else if (!strcmp(what, "sigreturn")) {
        answer(SYS_rt_sigreturn, refuse);
        add((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    } else {
        if (!strcmp(what, "samples")) {
            answer(SYS_gettid, refuse);
            /* What the C library needs of it is allowed: to block, to unblock and to set. */
            add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigprocmask, 0, 4));
            add((struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])));
            add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, SIG_SETMASK, 0, 1));
            add((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, refuse));
            add((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
        }
        /* Of a thread's own clock only: by the argument, which the filter keeps and compares by way of its other register. */
        answer(SYS_getrusage, refuse);
        add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clock_gettime, 0, 6));
        add((struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])));
        add((struct sock_filter)BPF_STMT(BPF_ST, 3));
        add((struct sock_filter)BPF_STMT(BPF_LDX | BPF_W | BPF_MEM, 3));
        add((struct sock_filter)BPF_STMT(BPF_LD | BPF_IMM, CLOCK_THREAD_CPUTIME_ID));
        add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_X, 0, 0, 1));
        add((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, refuse));
        add((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    }
    before();
    struct sock_fprog filter = {len, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        return 3;
    long result = !strcmp(argv[2], "itself") ? installs(&filter)
                  : !strcmp(argv[2], "prctl")
                      ? prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)
                      : syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter);
    if (result)
        return 4;
    filtered = 1;
    if (!strcmp(then, "exec")) {
        execv(argv[5], argv + 5);
        return 127;
    }
    if (!strcmp(then, "threads"))
        pthread_create(&begun, NULL, begins, NULL);
    after();
    if (!strcmp(then, "threads")) {
        pthread_join(begun, NULL);
        pthread_join(since, NULL);
    }
    say_so();
    return 6;
}
