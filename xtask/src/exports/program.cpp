// Two threads with loops, inlined calls and recursion: what formats of other tools have to hold.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <thread>
#include <vector>

static inline double series(double x) {
    double sum = 0;
    for (int i = 1; i < 400; i++) sum += std::sqrt(x * i) / (i + 1);
    return sum;
}

__attribute__((noinline)) double leaf(double x) {
    double sum = 0;
    for (int i = 0; i < 300; i++) sum += series(x + i);
    return sum;
}

__attribute__((noinline)) double recurse(int depth, double x) {
    if (depth == 0) return leaf(x);
    return recurse(depth - 1, x) + leaf(x + depth);
}

__attribute__((noinline)) void sorts() {
    for (int round = 0; round < 30; round++) {
        std::vector<int> values(200000);
        unsigned state = 1;
        for (auto &value : values) {
            state = state * 1664525 + 1013904223;
            value = state >> 3;
        }
        std::sort(values.begin(), values.end(), [](int a, int b) { return a % 1000 < b % 1000; });
    }
}

int main() {
    std::thread worker(sorts);
    double sum = 0;
    for (int i = 0; i < 60; i++) sum += recurse(20, i);
    worker.join();
    std::printf("%f\n", sum);
}
