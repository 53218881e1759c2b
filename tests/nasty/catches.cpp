// Exceptions thrown, caught and thrown again at every level of a deep stack, through frames whose destructors burn time in
// calls of their own and throw and catch within: catches ROUNDS. What is caught where is all known, and printed.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <sys/wait.h>
#include <unistd.h>

#define APART __attribute__((noinline))

static volatile std::uint64_t sink;
static long cleaned, caught, passed;

APART void burn(unsigned steps)
{
    for (unsigned i = 0; i < steps; i++)
        sink = sink * 6364136223846793005u + 1;
}

// Calls that return, while an exception is on its way or not.
APART long work(int depth)
{
    burn(60);
    long result = depth > 0 ? work(depth - 1) + 1 : 0;
    burn(20);
    return result;
}

struct Inner {
    int depth;
};

APART void inner(int depth)
{
    burn(40);
    if (depth == 0)
        throw Inner{3};
    inner(depth - 1);
    burn(1);
}

struct Held {
    int depth;
    explicit Held(int at) : depth(at) {}
    ~Held()
    {
        cleaned += work(depth % 4) == depth % 4;
        if (depth % 7 == 3) {
            try {
                inner(depth % 3);
            } catch (const Inner &thrown) {
                passed += thrown.depth;
            }
        }
    }
};

struct Thrown {
    int at;
};

struct Other {
};

struct Plan {
    int throws, catches, again;
};

APART long level(int depth, const Plan &plan);

// No clean-up and no handler: nothing is said of its calls' exceptions.
APART long plain(int depth, const Plan &plan)
{
    burn(10);
    long result = level(depth, plan);
    burn(10);
    return result + 1;
}

APART long level(int depth, const Plan &plan)
{
    Held held(depth);
    burn(20);
    if (depth == plan.throws) {
        burn(200);
        throw Thrown{depth};
    }
    long result = 0;
    if (depth == plan.catches || depth == plan.again) {
        try {
            try {
                result = depth % 2 ? plain(depth + 1, plan) : level(depth + 1, plan);
            } catch (const Other &) {
                std::puts("caught what nobody throws");
            }
        } catch (const Thrown &thrown) {
            burn(100);
            caught += thrown.at;
            if (depth == plan.again)
                throw;
            result = work(3);
        }
    } else {
        result = depth % 3 ? level(depth + 1, plan) : plain(depth + 1, plan);
    }
    burn(20);
    return result + 1;
}

APART void must_not(const Plan &plan) noexcept
{
    sink = sink + static_cast<std::uint64_t>(level(0, plan));
    burn(1);
}

APART long again(std::exception_ptr kept, int depth)
{
    Held held(depth);
    if (depth == 0)
        std::rethrow_exception(kept);
    return again(kept, depth - 1) + 1;
}

static void terminated()
{
    burn(20000);
    _exit(42);
}

APART long base(int depth, int round)
{
    if (depth > 0) {
        long result = base(depth - 1, round);
        burn(2);
        return result + 1;
    }
    Plan plan = {round % 40 + 1, round / 40 % (round % 40 + 1), -1};
    plan.again = round % 3 ? -1 : (plan.catches + plan.throws + 1) / 2;
    if (plan.again <= plan.catches || plan.again >= plan.throws)
        plan.again = -1;
    long result = level(0, plan);
    if (round % 16 == 5) {
        std::exception_ptr kept;
        try {
            level(0, Plan{round % 40, -1, -1});
        } catch (...) {
            kept = std::current_exception();
        }
        try {
            again(kept, round % 30);
        } catch (const Thrown &thrown) {
            caught += thrown.at;
        }
    }
    if (round % 512 == 77) {
        std::fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            std::set_terminate(terminated);
            must_not(Plan{round % 40, -1, -1});
            _exit(1);
        }
        int status = 0;
        waitpid(child, &status, 0);
        passed += WEXITSTATUS(status);
    }
    return result;
}

int main(int count, char **arguments)
{
    int rounds = count > 1 ? std::atoi(arguments[1]) : 1000;
    long sum = 0;
    for (int round = 0; round < rounds; round++)
        sum = sum * 31 + base(round % 150, round);
    std::printf("%ld, cleaned %ld, caught %ld, passed %ld\n", sum, cleaned, caught, passed);
}
