/* What leaves.cpp calls through: exceptions pass it. */
#include <string>

static unsigned long passed;

extern "C" __attribute__((noinline)) void passes_on(void (*f)(long), long n)
{
    std::string text = std::to_string(n);
    f(n);
    passed += text.size();
}
