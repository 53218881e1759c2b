// Frames that are left in every way: returns, exceptions through several modules, longjmp, signals, threads, tail calls,
// tables of jumps, computed gotos. What it prints does not depend on chance.
#include <algorithm>
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <execinfo.h>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#define PLAIN __attribute__((noinline, noclone))

struct Counted {
    int &live;
    explicit Counted(int &n) : live(n) { ++live; }
    ~Counted() { --live; }
};

static PLAIN int throws(int n, int &live) {
    Counted counted(live);
    if (n == 0) throw std::runtime_error("deep");
    return throws(n - 1, live) + 1;
}

static int exceptions() {
    int live = 0, sum = 0;
    for (int i = 0; i < 300; i++) {
        try { throws(i % 50, live); } catch (std::exception &e) { sum += e.what()[0]; }
        try { std::vector<int>().at(i); } catch (std::out_of_range &) { sum++; }
        try { std::stoi("none"); } catch (std::invalid_argument &) { sum += 2; }
    }
    // The library calls us back, and the exception passes it.
    int values[] = {3, 1, 2};
    try {
        std::sort(values, values + 3, [](int a, int b) -> bool { if (a == 2 || b == 2) throw 7; return a < b; });
    } catch (int thrown) { sum += thrown; }
    return sum + live;
}

static jmp_buf back;
static PLAIN void jumps(int n) {
    if (n == 0) longjmp(back, 3);
    jumps(n - 1);
    asm volatile("");
}

static volatile sig_atomic_t hits;
static void on_signal(int) { hits = hits + 1; }

static PLAIN int even(int n);
static PLAIN int odd(int n) { return n == 0 ? 0 : even(n - 1); }
static PLAIN int even(int n) { return n == 0 ? 1 : odd(n - 1); }

static PLAIN int table(int n) {
    switch (n) {
    case 0: return puts("none");
    case 1: return atoi("17");
    case 2: return abs(-n);
    case 3: throw n;
    case 4: return n * 7;
    case 5: return (int)labs(-n) + 2;
    case 6: return n << 3;
    default: return -1;
    }
}

static PLAIN int computed(const unsigned char *code) {
    static const void *const labels[] = {&&add, &&twice, &&less, &&end};
    int value = 1;
    goto *labels[*code];
add:
    value += 5;
    goto *labels[*++code];
twice:
    value *= 2;
    goto *labels[*++code];
less:
    value -= 3;
    goto *labels[*++code];
end:
    return value;
}

static long works(int seed) {
    std::map<int, std::string> words;
    long sum = 0;
    for (int i = 0; i < 2000; i++) {
        words[(i + seed) * 7919 % 1007] += char('a' + i % 26);
        try { if (i % 100 == 0) throw i; } catch (int thrown) { sum += thrown; }
    }
    for (auto &word : words) sum += word.second.size();
    return sum;
}

int main() {
    printf("exceptions %d\n", exceptions());
    if (int value = setjmp(back)) printf("longjmp %d\n", value);
    else jumps(20);
    signal(SIGUSR1, on_signal);
    for (int i = 0; i < 100; i++) raise(SIGUSR1);
    printf("signals %d\n", (int)hits);
    printf("tail calls %d\n", even(100001));
    int sum = 0;
    for (int i = 0; i < 70; i++) try { sum += table(i % 8); } catch (int thrown) { sum += 100 * thrown; }
    printf("table %d\n", sum);
    const unsigned char code[] = {0, 1, 2, 1, 0, 0, 1, 3};
    printf("computed %d\n", computed(code));
    std::vector<std::thread> threads;
    std::vector<long> sums(4);
    for (int k = 0; k < 4; k++) threads.emplace_back([k, &sums] { sums[k] = works(k); });
    for (auto &thread : threads) thread.join();
    for (long of : sums) printf("thread %ld\n", of);
    void *frames[40];
    int count = backtrace(frames, 40);
    printf("backtrace %d\n", count);
    return 7;
}
