/* Loops side by side on one line: one_line N.
 * The hazard: they count as one loop, or the copies that a compiler makes of one as several. */
#include <stdio.h>
#include <stdlib.h>

__attribute__((noinline)) double work(double *a, double *b, int count)
{
    double x = 1.0001;
    __asm__ volatile("" : "+x"(x));
    for (int round = 0; round < count; round++) {
        for (int i = 0; i < count; i++) a[i] /= x; for (int i = 0; i < 2 * count; i++) b[i] /= x;
        __asm__ volatile("" : : : "memory");
    }
    return a[count / 2] + b[count];
}

int main(int argc, char **argv)
{
    int count = argc > 1 ? atoi(argv[1]) : 1000;
    double *a = malloc(count * sizeof *a), *b = malloc(2 * count * sizeof *b), all = 0;
    for (int i = 0; i < 2 * count; i++)
        a[i / 2] = b[i] = i;
    for (int i = 0; i < 60; i++)
        all += work(a, b, count);
    printf("%.3g\n", all);
    return 0;
}
