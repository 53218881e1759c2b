// A rank of a parallel job: as much work as its rank says, in `uneven`, and equal work in `even`. Built with -DWITH_MPI the library says
// the rank, and ranks meet at a barrier, where the early ones wait; else the environment variable RANK does. Argument: how much work.
// With a second argument, `fork`, a child does the uneven part; with `die`, the last rank kills itself.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef WITH_MPI
#include <mpi.h>
#endif

static volatile unsigned long sink;

static __attribute__((noinline)) void work(unsigned long steps) {
    unsigned long x = sink + 88172645463325252ul;
    for (unsigned long i = 0; i < steps; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    sink = x;
}

static __attribute__((noinline)) void even(unsigned long steps) {
    work(steps);
    sink++;
}

static __attribute__((noinline)) void uneven(unsigned long steps) {
    work(steps);
    sink += 2;
}

int main(int argc, char **argv) {
    unsigned long amount = argc > 1 ? strtoul(argv[1], NULL, 10) : 100;
    const char *mode = argc > 2 ? argv[2] : "";
    int rank = 0, size = 4;
#ifdef WITH_MPI
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
#else
    rank = atoi(getenv("RANK"));
#endif
    even(amount * 400000);
    unsigned long steps = amount * 400000 * (rank + 1);
    pid_t child = strcmp(mode, "fork") == 0 ? fork() : -1;
    if (child == 0) {
        uneven(steps);
        _exit(0);
    }
    if (child > 0) {
        waitpid(child, NULL, 0);
    } else {
        uneven(steps);
    }
    if (strcmp(mode, "die") == 0 && rank == size - 1) {
        raise(SIGKILL);
    }
#ifdef WITH_MPI
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
#endif
    printf("rank %d\n", rank);
    return 0;
}
