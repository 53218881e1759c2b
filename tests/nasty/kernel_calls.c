/* Costs in the kernel, each in a procedure of its own: calls by the C library, by number, in the vdso, and page faults.
 * kernel_calls N: so many of each; page faults are N / 8. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

__attribute__((noinline)) static void by_name(long n) {
    for (long i = 0; i < n; i++) getppid();
}

__attribute__((noinline)) static void by_number(long n) {
    for (long i = 0; i < n; i++) syscall(SYS_getpgid, 0);
}

/* The number is not known before it runs. */
__attribute__((noinline)) static void by_variable(long n, volatile long *number) {
    for (long i = 0; i < n; i++) syscall(*number);
}

__attribute__((noinline)) static void in_vdso(long n) {
    struct timespec now;
    for (long i = 0; i < n; i++) clock_gettime(CLOCK_MONOTONIC, &now);
}

__attribute__((noinline)) static void touch(char *memory, long bytes) {
    for (long i = 0; i < bytes; i += 4096) memory[i] = 1;
}

__attribute__((noinline)) static void by_faults(long n) {
    long bytes = n * 4096;
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) exit(1);
    madvise(memory, bytes, MADV_NOHUGEPAGE);
    touch(memory, bytes);
}

int main(int count, char **words) {
    long n = count > 1 ? atol(words[1]) : 1000000;
    volatile long number = SYS_getsid;
    by_name(n);
    by_number(n);
    by_variable(n, &number);
    in_vdso(n * 4);
    by_faults(n / 8);
    puts("done");
    return 0;
}
