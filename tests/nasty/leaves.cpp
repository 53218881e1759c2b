/* Functions that are left otherwise than by a return: leaves HOW [FILE]
 *   throws   by exceptions, caught several frames up, thrown again, through a module between (leaves_library.cpp)
 *   jumps    by longjmp and siglongjmp, also out of a signal handler
 *   exits    in a function that ends the program by exit, from a depth; its handlers of atexit call, too
 *   aborts   the same by abort()
 * All calls are known by path. */
#include <setjmp.h>
#include <signal.h>
#include <stdexcept>

extern "C" {
#include "truth.h"
}

/* Ends with its scope, also when an exception leaves it. */
struct Scope {
    struct truth *caller;
    explicit Scope(const char *name) : caller(truth_enter(name)) {}
    ~Scope() { truth_here = caller; }
};

extern "C" void passes_on(void (*f)(long), long n);

static unsigned long sink;

extern "C" {
__attribute__((noinline)) void leaf(long n)
{
    Scope scope("leaf");
    sink += n;
}

__attribute__((noinline)) void thrower(long n)
{
    Scope scope("thrower");
    leaf(n);
    if (n % 3 == 0)
        throw std::runtime_error("third");
    if (n % 5 == 0)
        throw n;
    leaf(n);
}

__attribute__((noinline)) void middle(long n)
{
    Scope scope("middle");
    std::string text = std::to_string(n);
    if (n % 2)
        thrower(n);
    else
        passes_on(thrower, n);
    sink += text.size();
}

__attribute__((noinline)) void rethrower(long n)
{
    Scope scope("rethrower");
    try {
        middle(n);
    } catch (long) {
        leaf(n);
        throw;
    }
}

__attribute__((noinline)) void catcher(long n)
{
    Scope scope("catcher");
    try {
        rethrower(n);
    } catch (const std::exception &) {
        leaf(n);
    } catch (long n) {
        leaf(n);
        try {
            thrower(3 * n);
        } catch (const std::exception &) {
        }
    }
    leaf(n);
}

static sigjmp_buf back;

[[noreturn]] __attribute__((noinline)) void jumper(long n)
{
    truth_enter("jumper");
    leaf(n);
    if (n % 2)
        siglongjmp(back, 1);
    longjmp(back, 2);
}

__attribute__((noinline)) void handler(int number)
{
    truth_enter("handler");
    jumper(number);
}

__attribute__((noinline)) void deep(long depth, long n)
{
    ENTERED;
    if (depth)
        deep(depth - 1, n);
    else if (n % 10 == 0)
        raise(SIGUSR1);
    else if (n % 4)
        jumper(n);
    leaf(n);
    LEFT;
}

__attribute__((noinline)) void lands(long n)
{
    ENTERED;
    if (!sigsetjmp(back, n % 3 || n % 10 == 0))
        deep(n % 7, n);
    else
        truth_here = truth_callee(truth_caller, "lands");
    leaf(n);
    LEFT;
}

__attribute__((noinline)) void at_the_end()
{
    ENTERED;
    leaf(1);
    LEFT;
    truth_write();
}

[[noreturn]] __attribute__((noinline)) void ends(const char *how)
{
    truth_enter("ends");
    leaf(2);
    if (!strcmp(how, "exits"))
        exit(9);
    truth_write();
    abort();
}

__attribute__((noinline)) void goes_to_end(const char *how, int depth)
{
    ENTERED;
    if (depth)
        goes_to_end(how, depth - 1);
    else
        ends(how);
    leaf(3);
    LEFT;
}
}

int main(int argc, char **argv)
{
    ENTERED;
    const char *how = argc > 1 ? argv[1] : "";
    if (!strcmp(how, "throws"))
        for (long n = 0; n < 3000; n++)
            catcher(n);
    else if (!strcmp(how, "jumps")) {
        signal(SIGUSR1, handler);
        for (long n = 0; n < 3000; n++)
            lands(n);
    } else {
        if (!strcmp(how, "exits"))
            atexit(at_the_end);
        puts("ends");
        fflush(stdout);
        goes_to_end(how, 5);
    }
    LEFT;
    truth_write();
    printf("%lu\n", sink);
    return 4;
}
