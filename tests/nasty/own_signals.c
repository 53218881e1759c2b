/* Takes SIGTRAP for its own by system calls that no hook sees, and ends at the first one, as Go's runtime without cgo does. It has
 * Go's note, which is how it is known. It works for 100 ms and ends with 3. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

__attribute__((section(".note.go.buildid"), used, aligned(4))) static const struct {
    uint32_t name_len, len, kind;
    char name[4], what[8];
} note = {4, 8, 4, "Go\0", "nothing"};

static volatile uint64_t sink;

static void ends(int signal)
{
    static const char words[] = "SIGTRAP: trace trap\n";
    (void)!write(2, words, sizeof words - 1);
    _exit(signal == SIGTRAP ? 2 : 4);
}

__attribute__((naked)) static void restore(void)
{
    __asm__("mov $15, %eax\n\tsyscall");
}

int main(void)
{
    struct {
        void (*handler)(int);
        unsigned long flags;
        void (*restorer)(void);
        uint64_t mask;
    } action = {ends, 0x04000000, restore, 0};
    if (syscall(SYS_rt_sigaction, SIGTRAP, &action, 0, 8))
        return 1;
    struct timespec t;
    long until = 0;
    do {
        for (int i = 0; i < 100000; i++)
            sink += i;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
        until = t.tv_sec * 1000 + t.tv_nsec / 1000000;
    } while (until < 100);
    return 3;
}
