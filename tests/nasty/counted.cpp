// Procedures that are executed a known number of times: by many threads, in a fork's child, in a signal's handler, left by
// exceptions and by longjmp. In the end it executes itself, which is another program, and is killed.
#include <atomic>
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <pthread.h>
#include <stdexcept>
#include <sys/wait.h>
#include <unistd.h>

#define PLAIN __attribute__((noinline, noclone))
extern "C" {
PLAIN int unit(int x) {
    asm volatile("" : "+r"(x));
    return x * 3 + 1;
}
PLAIN int throws(int x) {
    if (x % 10 == 0) throw std::runtime_error("x");
    return x;
}
PLAIN int catches(int x) {
    try {
        return throws(x);
    } catch (std::exception &) {
        return -1;
    }
}
static jmp_buf place;
PLAIN int jumps(int x) {
    if (x % 4 == 0) longjmp(place, 1);
    return x;
}
PLAIN int passes(int x) {
    int r = jumps(x);
    asm volatile("" : "+r"(r));
    return r;
}
PLAIN int comes_back(int x) {
    if (setjmp(place)) return -1;
    return passes(x);
}
static std::atomic<long> handled;
PLAIN void handles(int) {
    for (int i = 0; i < 3; i++) unit(i);
    handled++;
}
PLAIN void *works(void *) {
    long s = 0;
    for (int i = 0; i < 100000; i++) s += unit(i);
    return reinterpret_cast<void *>(s);
}
PLAIN int recurses(int n) {
    int r = n == 0 ? 0 : 1 + recurses(n - 1);
    asm volatile("" : "+r"(r));
    return r;
}
}

int main(int count, char **words) {
    if (count > 1) kill(getpid(), SIGKILL);
    pthread_t threads[8];
    for (int round = 0; round < 5; round++) {
        for (auto &thread : threads) pthread_create(&thread, nullptr, works, nullptr);
        for (auto &thread : threads) pthread_join(thread, nullptr);
    }
    long s = 0;
    for (int i = 0; i < 1000; i++) s += catches(i) + comes_back(i);
    signal(SIGUSR1, handles);
    for (int i = 0; i < 500; i++) raise(SIGUSR1);
    s += recurses(10000);
    if (fork() == 0) {
        for (int i = 0; i < 777; i++) s += unit(1);
        _exit(3);
    }
    int status;
    wait(&status);
    printf("%ld %ld %d\n", s, handled.load(), WEXITSTATUS(status));
    fflush(stdout);
    execl("/proc/self/exe", words[0], "again", nullptr);
    return 1;
}
