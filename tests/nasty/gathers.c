/* A lattice code in small (Bernat and Miller 2006, section 5.1): each MPI_Wait is made by one wrapper, which many paths
 * lead to; on one of them the neighbour sends late. Argument: how many trajectories. Each rank knows the calls of each
 * path, and prints how long the waits on the late one took, ns. */
#include "truth.h"
#include <mpi.h>
#include <time.h>

static int rank, size;
static unsigned long sink;
static long late_ns;
static int is_measured;

static long now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

__attribute__((noinline)) static void multiply(unsigned long steps)
{
    unsigned long x = sink + 88172645463325252ul;
    for (unsigned long i = 0; i < steps; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    sink = x;
}

/* The one caller that a profile of functions shows. */
__attribute__((noinline)) void wait_for(MPI_Request *request)
{
    ENTERED;
    struct truth *own = truth_enter("MPI_Wait");
    MPI_Wait(request, MPI_STATUS_IGNORE);
    truth_here = own;
    LEFT;
}

__attribute__((noinline)) void wait_gather(MPI_Request *requests)
{
    ENTERED;
    wait_for(&requests[0]);
    wait_for(&requests[1]);
    LEFT;
}

__attribute__((noinline)) void exchange(int direction, int is_late)
{
    ENTERED;
    double here[8] = {0}, there[8];
    MPI_Request requests[2];
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    MPI_Irecv(there, 8, MPI_DOUBLE, from, direction, MPI_COMM_WORLD, &requests[0]);
    if (is_late && rank % 2) {
        struct timespec time = {0, 2000000};
        nanosleep(&time, NULL);
    }
    MPI_Isend(here, 8, MPI_DOUBLE, to, direction, MPI_COMM_WORLD, &requests[1]);
    long begun = now();
    wait_gather(requests);
    if (is_late)
        late_ns += now() - begun;
    LEFT;
}

#define GATHER(direction, number)                                     \
    __attribute__((noinline)) void gather_##direction(int is_late)     \
    {                                                                 \
        ENTERED;                                                      \
        exchange(number, is_late);                                    \
        LEFT;                                                         \
    }
GATHER(x, 0)
GATHER(y, 1)
GATHER(z, 2)
GATHER(t, 3)

__attribute__((noinline)) void dslash(void)
{
    ENTERED;
    gather_x(0);
    gather_y(0);
    gather_z(0);
    gather_t(0);
    multiply(20000);
    LEFT;
}

__attribute__((noinline)) void dslash_special(int is_late)
{
    ENTERED;
    gather_x(0);
    gather_y(0);
    gather_z(0);
    gather_t(is_late);
    multiply(20000);
    LEFT;
}

__attribute__((noinline)) void ks_congrad(int iterations, int is_late)
{
    ENTERED;
    for (int i = 0; i < iterations; i++) {
        dslash_special(is_late);
        dslash();
    }
    LEFT;
}

__attribute__((noinline)) void grsource(void)
{
    ENTERED;
    ks_congrad(1, 0);
    LEFT;
}

__attribute__((noinline)) void update_h(void)
{
    ENTERED;
    multiply(50000);
    ks_congrad(3, is_measured);
    LEFT;
}

__attribute__((noinline)) void f_meas(void)
{
    ENTERED;
    ks_congrad(2, 0);
    LEFT;
}

#define PHASE(name, measured)                    \
    __attribute__((noinline)) void name(void)    \
    {                                            \
        ENTERED;                                 \
        is_measured = measured;                  \
        grsource();                              \
        update_h();                              \
        f_meas();                                \
        LEFT;                                    \
    }
PHASE(warm_up, 0)
PHASE(trajectory, 1)
PHASE(last_look, 0)

int main(int argc, char **argv)
{
    ENTERED;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int trajectories = argc > 1 ? atoi(argv[1]) : 10;
    warm_up();
    for (int i = 0; i < trajectories; i++)
        trajectory();
    last_look();
    printf("%d %ld\n", (int)getpid(), late_ns);
    MPI_Finalize();
    LEFT;
    truth_write();
    return 0;
}
