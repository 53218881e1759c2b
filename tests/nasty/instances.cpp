// Two lambdas of one procedure, and three instantiations of a template.
#include <cmath>
#include <cstdio>
#include <vector>

template <typename T, int N>
__attribute__((noinline)) double turn(const std::vector<T> &values, double sum) {
    for (T value : values)
        sum = std::sqrt(sum + value * N);
    return sum;
}

template <typename F>
__attribute__((noinline)) double each(long count, F f) {
    double sum = 1;
    for (long i = 0; i < count; i++)
        sum = f(sum, i);
    return sum;
}

int main() {
    std::vector<int> integers(1000, 3);
    std::vector<float> floats(1000, 4.f);
    double sum = 1;
    for (int i = 0; i < 30000; i++) {
        sum = turn<int, 2>(integers, sum);
        sum = turn<int, 3>(integers, sum);
        sum = turn<float, 2>(floats, sum);
    }
    sum += each(30000000, [](double s, long i) __attribute__((noinline)) { return std::sqrt(s + i); });
    sum += each(30000000, [](double s, long i) __attribute__((noinline)) { return std::sqrt(s * 3 + i); });
    std::printf("%f\n", sum);
}
