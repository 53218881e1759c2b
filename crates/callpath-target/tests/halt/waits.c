// Waits, in one thread, in the system call that is named, until standard input ends or what it waits for is there.
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int main(int count, char **arguments) {
    printf("ready\n");
    fflush(stdout);
    int right = count == 2;
    char byte;
    if (right && strcmp(arguments[1], "nanosleep") == 0) {
        struct timespec time = {1, 0}, before, after;
        clock_gettime(CLOCK_MONOTONIC, &before);
        right = syscall(SYS_nanosleep, &time, NULL) == 0;
        clock_gettime(CLOCK_MONOTONIC, &after);
        double seconds = after.tv_sec - before.tv_sec + (after.tv_nsec - before.tv_nsec) / 1e9;
        right &= seconds >= 1;
    }
    right &= read(0, &byte, 1) == 0;
    printf(right ? "right\n" : "wrong\n");
    return !right;
}
