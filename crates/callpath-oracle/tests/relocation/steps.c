// Blocks of many kinds, each run a number of times of its own.
#include <stdio.h>
#include <string.h>

#define PLAIN __attribute__((noinline, noclone))

static PLAIN unsigned fibonacci(unsigned n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

static PLAIN unsigned classes(const char *text) {
    unsigned found = 0;
    for (; *text; text++) {
        switch (*text) {
        case 'a': found += 1; break;
        case 'b': found ^= 2; break;
        case 'c': found <<= 1; break;
        case 'd': found += 7; break;
        case 'e': found *= 3; break;
        case 'f': found -= 1; break;
        default: if (*text & 1) found++;
        }
    }
    return found;
}

static PLAIN int last(const int *of, int n) { return n ? of[n - 1] : 0; }
static PLAIN int tail(const int *of, int n) { return last(of, n & 7); }

static PLAIN int sums(int n) {
    int of[8], sum = 0;
    memset(of, 1, sizeof of);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < i % 5; k++) {
            of[k] += i;
            if (of[k] % 3 == 0) continue;
            sum += tail(of, k + i);
        }
    return sum;
}

int main(void) {
    printf("%u %u %d\n", fibonacci(12), classes("a face bed cab deaf decade fabled"), sums(40));
    return 0;
}
