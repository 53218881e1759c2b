// C++ exceptions through frames that hold objects, all the time.
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>

static volatile std::uint64_t sink;

struct Held {
    std::string name;
    ~Held() { sink = sink + name.size(); }
};

__attribute__((noinline)) void thrower(int depth)
{
    Held held{std::string(static_cast<std::size_t>(depth) + 20, 'x')};
    if (depth == 0)
        throw std::runtime_error("from the bottom");
    thrower(depth - 1);
    sink = sink + 1;
}

int main()
{
    int caught = 0;
    for (int i = 0; i < 40000; i++) {
        try {
            thrower(i % 10);
        } catch (const std::runtime_error &) {
            caught++;
        }
    }
    std::printf("%d caught\n", caught);
}
