/* A stencil over a grid and a reduction, each a parallel region. */
#include <stdio.h>
#include <stdlib.h>

enum { SIDE = 700 };
static double from[SIDE][SIDE], to[SIDE][SIDE];

static void step(double a[SIDE][SIDE], double b[SIDE][SIDE])
{
#pragma omp parallel for schedule(static)
    for (int i = 1; i < SIDE - 1; i++)
        for (int j = 1; j < SIDE - 1; j++)
            b[i][j] = 0.25 * (a[i - 1][j] + a[i + 1][j] + a[i][j - 1] + a[i][j + 1]);
}

static long cells_above(double bound)
{
    long count = 0;
#pragma omp parallel for reduction(+ : count) schedule(dynamic, 16)
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < SIDE; j++)
            count += from[i][j] > bound;
    return count;
}

int main(int argc, char **argv)
{
    int steps = argc > 1 ? atoi(argv[1]) : 100;
    for (int i = 0; i < SIDE; i++)
        from[0][i] = to[0][i] = 100;
    for (int i = 0; i < steps; i++) {
        step(from, to);
        step(to, from);
    }
    printf("%ld\n", cells_above(1));
}
