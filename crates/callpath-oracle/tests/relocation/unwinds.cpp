// Whatever unwinds: exceptions that are caught, that only clean up, that are thrown again, nested, foreign, specified,
// through the C library; ends of threads; backtrace(), also in a handler. With an argument it prints the frames, too.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <execinfo.h>
#include <pthread.h>
#include <stdexcept>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <unwind.h>
#include <vector>

#define PLAIN __attribute__((noinline, noclone))

static int cleaned;
struct Cleaned {
    int by;
    explicit Cleaned(int n) : by(n) {}
    ~Cleaned() { cleaned += by; }
};
struct Base { virtual ~Base() {} };
struct Left : virtual Base { int left = 1; };
struct Right : virtual Base { int right = 2; };
struct Both : Left, Right {};

// Arguments on the stack, a frame of variable length, and callee-saved registers that have to come back.
static PLAIN int deep(int n, int a, int b, int c, int d, int e, int f, int g, int kind) {
    Cleaned cleans(n + a + g);
    volatile char *block = (volatile char *)__builtin_alloca(16 + n % 40);
    block[n % 16] = (char)n;
    if (n == 0) {
        switch (kind) {
        case 0: throw 5;
        case 1: throw std::string("text");
        case 2: throw Both();
        case 3: throw "characters";
        default: throw std::out_of_range("range");
        }
    }
    int result = deep(n - 1, b, c, d, e, f, g, a, kind);
    return result + block[n % 16];
}

static PLAIN int catches(int kind) {
    int one = kind * 3, two = one + 7, three = two * two;
    try {
        return deep(12 + kind, one, two, three, 4, 5, 6, 7, kind);
    } catch (int value) {
        return value + one + two + three;
    } catch (const std::string &text) {
        return (int)text.size() + one + two + three;
    } catch (Left &left) {
        return left.left + one + two + three;
    } catch (const char *text) {
        return (int)strlen(text) + one + two + three;
    } catch (const std::exception &exception) {
        return exception.what()[0] + one + two + three;
    }
}

static PLAIN int again(int n) {
    try {
        Cleaned cleans(1000);
        if (n == 0) throw std::runtime_error("again");
        return again(n - 1);
    } catch (std::runtime_error &) {
        if (n % 3 == 0) throw;
        if (n % 3 == 1) std::throw_with_nested(std::logic_error("around"));
        throw std::runtime_error("other");
    }
}

static int depth_of(const std::exception &exception) {
    try {
        std::rethrow_if_nested(exception);
    } catch (const std::exception &inner) {
        return 1 + depth_of(inner);
    }
    return 0;
}

static int nested() {
    int sum = 0;
    for (int n = 0; n < 9; n++) {
        try { again(n); } catch (const std::exception &exception) { sum += exception.what()[0] + depth_of(exception); }
    }
    std::exception_ptr kept;
    try { throw 11; } catch (...) { kept = std::current_exception(); }
    try { std::rethrow_exception(kept); } catch (int value) { sum += value; }
    return sum;
}

static _Unwind_Exception alien;
static int aliens_deleted;
static PLAIN void throws_alien(int n) {
    Cleaned cleans(100000);
    if (n > 0) {
        throws_alien(n - 1);
        asm volatile("");
        return;
    }
    memset(&alien, 0, sizeof alien);
    memcpy(&alien.exception_class, "ALIENXYZ", 8);
    alien.exception_cleanup = [](_Unwind_Reason_Code, _Unwind_Exception *) { aliens_deleted++; };
    _Unwind_RaiseException(&alien);
    abort();
}

static int foreign() {
    try { throws_alien(5); } catch (int) { return -1; } catch (...) { return 1; }
    return -2;
}

#if __cplusplus < 201703L
static PLAIN void specified(int n) throw(int, std::bad_exception) {
    if (n == 0) throw 3;
    throw 'c';
}
static void unexpected_is_bad() { throw; }
static int specifications() {
    std::set_unexpected(unexpected_is_bad);
    int sum = 0;
    try { specified(0); } catch (int value) { sum += value; }
    try { specified(1); } catch (std::bad_exception &) { sum += 40; }
    return sum;
}
#else
static int specifications() { return 43; }
#endif

static int compared;
static int compares(const void *a, const void *b) {
    if (++compared == 20) throw 'q';
    return *(const int *)a - *(const int *)b;
}
static int through_library() {
    int values[64];
    for (int i = 0; i < 64; i++) values[i] = i * 37 % 64;
    try { qsort(values, 64, sizeof *values, compares); } catch (char thrown) { return thrown + compared; }
    return -1;
}

static PLAIN void must_not_throw(int n) noexcept { catches(n); if (n) throw n; }
static int terminates() {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        std::set_terminate([] { _exit(42); });
        must_not_throw(1);
        _exit(1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static PLAIN void *leaves(void *how) {
    Cleaned cleans(10000000);
    pthread_cleanup_push([](void *) { cleaned += 1; }, nullptr);
    if (how) pthread_exit((void *)17);
    // Not `pause`: where calls are made at home, a walk that begins in a copy does not leave it, and a signal may come there.
    for (;;) pthread_testcancel();
    pthread_cleanup_pop(0);
    return nullptr;
}
static long threads() {
    pthread_t one, other;
    void *first = nullptr, *second = nullptr;
    pthread_create(&one, nullptr, leaves, (void *)1);
    pthread_join(one, &first);
    pthread_create(&other, nullptr, leaves, nullptr);
    pthread_cancel(other);
    pthread_join(other, &second);
    return (long)first + (second == PTHREAD_CANCELED);
}

static void *frames[64], *in_handler[64];
static int count, count_in_handler;
static void on_signal(int) { count_in_handler = backtrace(in_handler, 64); }
static PLAIN int walks(int n) {
    if (n > 0) return walks(n - 1) + 1;
    count = backtrace(frames, 64);
    raise(SIGUSR1);
    return 0;
}
struct Walk { int count; void *frames[64]; };
static Walk own;
static PLAIN int walks_itself(int n) {
    if (n > 0) return walks_itself(n - 1) + 1;
    _Unwind_Backtrace([](_Unwind_Context *context, void *) {
        if (own.count < 64) own.frames[own.count++] = (void *)_Unwind_GetIP(context);
        return _URC_NO_REASON;
    }, nullptr);
    return 0;
}
static int compares_and_walks(const void *a, const void *b) {
    if (compared++ == 0) walks(3);
    return *(const int *)a - *(const int *)b;
}

int main(int argc, char **) {
    for (int kind = 0; kind < 5; kind++) printf("caught %d\n", catches(kind));
    printf("nested %d\n", nested());
    printf("foreign %d %d\n", foreign(), aliens_deleted);
    printf("specified %d\n", specifications());
    printf("through %d\n", through_library());
    printf("terminates %d\n", terminates());
    printf("threads %ld\n", threads());
    printf("cleaned %d\n", cleaned);
    signal(SIGUSR1, on_signal);
    compared = 0;
    int values[3] = {3, 1, 2};
    qsort(values, 3, sizeof *values, compares_and_walks);
    walks_itself(7);
    printf("frames %d %d\n", count, own.count);
    // Where calls are made at home, a walk that begins in a copy does not leave it.
    if (argc > 1) {
        for (int i = 0; i < count; i++) printf("frame %p\n", frames[i]);
        for (int i = 0; i < count_in_handler; i++) printf("frame %p\n", in_handler[i]);
        for (int i = 0; i < own.count; i++) printf("frame %p\n", own.frames[i]);
    }
    return 3;
}
