/* Loops in a procedure and in what was inlined into it: loops N.
 * The hazard: cost of a loop that stands at another one, or only at the procedure. */
#include <stdio.h>
#include <stdlib.h>

static inline double sum(const double *values, int count)
{
    double all = 0;
    for (int i = 0; i < count; i++)
        all += values[i] / (1 + all);
    return all;
}

__attribute__((noinline)) double scale(double by)
{
    volatile double much = by;
    for (int i = 0; i < 200; i++)
        much = much / 1.0001;
    return much;
}

__attribute__((noinline)) double work(double *values, int count)
{
    double all = 0;
    for (int round = 0; round < count; round++) {
        all += sum(values, count);
        int calls = 10;
        while (calls-- > 0)
            all += scale(values[round]);
    }
    return all;
}

int main(int argc, char **argv)
{
    int count = argc > 1 ? atoi(argv[1]) : 1000;
    double *values = malloc(count * sizeof *values);
    for (int i = 0; i < count; i++)
        values[i] = i;
    printf("%.3g\n", work(values, count));
    return 0;
}
