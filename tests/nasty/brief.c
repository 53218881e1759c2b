/* Many processes that end before a sample: brief COUNT MICROSECONDS.
 * Each works so long and ends by _exit, which calls nothing of the C library's. */
#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile uint64_t sink;

__attribute__((noinline)) static void work(long until_ns)
{
    struct timespec t;
    do {
        for (int i = 0; i < 1000; i++)
            sink += i;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    } while (t.tv_sec * 1000000000L + t.tv_nsec < until_ns);
}

int main(int argc, char **argv)
{
    for (int i = 0; argc == 3 && i < atoi(argv[1]); i++) {
        pid_t child = fork();
        if (child < 0)
            return 1;
        if (child == 0) {
            work(atol(argv[2]) * 1000);
            _exit(0);
        }
        if (waitpid(child, 0, 0) != child)
            return 1;
    }
    return 0;
}
