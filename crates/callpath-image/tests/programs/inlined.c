// A few procedures, inlined into each other; one with a cold part, one with a local class's worth of blocks.
#include <stdlib.h>

static inline int twice(int number) { return 2 * number; }

static inline int thrice(int number) {
    int sum = number;
    for (int i = 0; i < 2; i++) {
        sum += twice(number) / 2;
    }
    return sum;
}

__attribute__((noinline)) int apply(int number) {
    if (__builtin_expect(number < 0, 0))
        abort();
    return thrice(number) + twice(thrice(number + 1));
}

int main(int argc, char **argv) {
    return apply(argc) + twice(argv[0][0]);
}
