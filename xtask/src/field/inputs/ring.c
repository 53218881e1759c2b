/* Each rank has a piece of a bar; its ends are sent to the neighbours at every step. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { CELLS = 200000 };

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int steps = argc > 1 ? atoi(argv[1]) : 100, rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    double *now = calloc(CELLS + 2, sizeof *now), *next = calloc(CELLS + 2, sizeof *next);
    if (rank == 0)
        now[0] = next[0] = 1;
    int left = rank > 0 ? rank - 1 : MPI_PROC_NULL, right = rank + 1 < ranks ? rank + 1 : MPI_PROC_NULL;
    for (int step = 0; step < steps; step++) {
        MPI_Sendrecv(now + CELLS, 1, MPI_DOUBLE, right, 0, now, 1, MPI_DOUBLE, left, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Sendrecv(now + 1, 1, MPI_DOUBLE, left, 1, now + CELLS + 1, 1, MPI_DOUBLE, right, 1, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        for (int i = 1; i <= CELLS; i++)
            next[i] = 0.5 * now[i] + 0.25 * (now[i - 1] + now[i + 1]);
        double *swap = now;
        now = next;
        next = swap;
    }
    double sum = 0, all;
    for (int i = 1; i <= CELLS; i++)
        sum += now[i];
    MPI_Reduce(&sum, &all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%.9f\n", all);
    MPI_Finalize();
}
