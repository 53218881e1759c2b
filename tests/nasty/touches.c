/* Paths that cost a known number of page faults, or wait: touches.c ROUNDS [jump|kill|wait].
 *
 * Of each four calls of `touches` three take the path that touches no page, and one that which touches 3 new ones. `outer` touches one itself, and calls
 * `touches`. With `wait`, `waits` is called instead: of each four calls one waits for 2 ms, in a system call of its own, and three work, by one instruction.
 * With `jump` or `kill`, `loops` touches 10 pages in each round but the last one, where it faults; the signal's handler jumps out of it, or kills the program. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, WORK = 1 << 20 };

static volatile char *next;
static char work[WORK];
static sigjmp_buf place;
static int how;

/* A page that nobody has touched. */
#define TOUCH() (*next = 1, next += PAGE)

__attribute__((noinline)) void touches(uint64_t which) {
    if (which % 4 == 3) {
        TOUCH();
        TOUCH();
        TOUCH();
    }
}

__attribute__((noinline)) void outer(uint64_t which) {
    touches(which);
    TOUCH();
}

__attribute__((noinline)) void waits(uint64_t which) {
    if (which % 4 == 3) {
        struct timespec time = {0, 2000000};
        long result;
        __asm__ volatile("xor %%esi, %%esi\n\tsyscall" : "=a"(result) : "a"(SYS_nanosleep), "D"(&time) : "rsi", "rcx", "r11", "memory");
    } else {
        char *to = work;
        uint64_t count = WORK;
        __asm__ volatile("rep stosb" : "+D"(to), "+c"(count) : "a"(1) : "memory");
    }
}

__attribute__((noinline)) void loops(uint64_t rounds) {
    for (uint64_t round = 0; round < rounds; round++) {
        if (round + 1 == rounds) {
            __asm__ volatile("movb $1, 0" ::: "memory");
        }
        for (int i = 0; i < 10; i++) {
            TOUCH();
        }
    }
}

static void faults(int signal) {
    if (how == 'j') {
        siglongjmp(place, signal);
    }
    kill(getpid(), SIGKILL);
}

__attribute__((noinline)) void left(uint64_t rounds) {
    if (sigsetjmp(place, 1) == 0) {
        loops(rounds);
    }
}

int main(int argc, char **argv) {
    uint64_t rounds = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000;
    how = argc > 2 ? argv[2][0] : 0;
    size_t bytes = (rounds * 20 + 100) * PAGE;
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    /* The kernel gives no huge ones there. */
    if (memory == MAP_FAILED || madvise(memory, bytes, MADV_NOHUGEPAGE) != 0) {
        return 2;
    }
    next = memory;
    if (how == 'w') {
        for (uint64_t round = 0; round < rounds; round++) {
            waits(round);
        }
    } else if (how != 0) {
        signal(SIGSEGV, faults);
        left(rounds);
    } else {
        for (uint64_t round = 0; round < rounds; round++) {
            outer(round);
        }
    }
    printf("%ld pages\n", (long)((next - memory) / PAGE));
    return 0;
}
