// Exceptions through twenty frames, half of which have something to destroy or catch and throw on.
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

struct Guard {
    long &count;
    ~Guard() { count++; }
};

__attribute__((noinline)) static long deep(int depth, long number, long &destroyed)
{
    Guard guard{destroyed};
    if (depth == 0) {
        if (number % 3)
            throw std::runtime_error("number " + std::to_string(number));
        return number;
    }
    if (depth % 4 == 0) {
        try {
            return deep(depth - 1, number, destroyed) + 1;
        } catch (const std::logic_error &) {
            return -1;
        } catch (...) {
            throw;
        }
    }
    return deep(depth - 1, number, destroyed) + 1;
}

int main(int argc, char **argv)
{
    long numbers = argc > 1 ? atol(argv[1]) : 1000, destroyed = 0, sum = 0, caught = 0;
    for (long number = 0; number < numbers; number++) {
        try {
            sum += deep(20, number, destroyed);
        } catch (const std::exception &error) {
            caught += error.what()[7] - '0';
        }
    }
    printf("%ld %ld %ld\n", sum, caught, destroyed);
}
