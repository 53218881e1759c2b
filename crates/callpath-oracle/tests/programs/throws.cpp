// Exceptions: across frames, with clean-up on the way, thrown again, and across a library's frames.
#include "marks.h"
#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#define PLAIN __attribute__((noinline, noclone))

MARK(mark_cleanup, "within")
MARK(mark_caught, "exact")
MARK(mark_caught_again, "exact")
MARK(mark_outermost, "exact")
MARK(mark_virtual, "exact")

struct Cleanup {
    std::string text = "a text that is too long for the short form of strings";
    PLAIN ~Cleanup() {
        static bool marked = false;
        if (!marked) mark_cleanup();
        marked = true;
    }
};

struct Shape {
    virtual ~Shape() = default;
    virtual int area() const = 0;
};

struct Square : Shape {
    int side;
    explicit Square(int s) : side(s) {}
    PLAIN int area() const override {
        IN;
        mark_virtual();
        OUT;
        return side * side;
    }
};

static PLAIN int throws(int n) {
    IN;
    Cleanup cleanup;
    if (n == 0) throw std::runtime_error(cleanup.text);
    int result = throws(n - 1);
    OUT;
    return result + 1;
}

static PLAIN int catches(int n) {
    IN;
    int len = kept_len, result;
    try {
        result = throws(n);
    } catch (const std::exception &error) {
        kept_len = len;
        mark_caught();
        result = static_cast<int>(std::string(error.what()).size());
    }
    OUT;
    return result;
}

static PLAIN void throws_again() {
    IN;
    int len = kept_len;
    try {
        throws(3);
    } catch (...) {
        kept_len = len;
        mark_caught_again();
        throw;
    }
    OUT;
}

static PLAIN int across_library() {
    IN;
    int len = kept_len;
    std::vector<int> numbers{3, 1, 2};
    try {
        std::sort(numbers.begin(), numbers.end(), [](int a, int b) -> bool {
            if (a + b == 5) throw a;
            return a < b;
        });
    } catch (int) {
    }
    kept_len = len;
    OUT;
    return 0;
}

int main() {
    IN;
    int len = kept_len, failures = 0;
    catches(5);
    try {
        throws_again();
        failures++;
    } catch (const std::runtime_error &) {
        kept_len = len;
        mark_outermost();
    }
    across_library();
    Shape *shape = new Square(3);
    failures += shape->area() != 9;
    delete shape;
    try {
        failures += std::stoi("no number");
        failures++;
    } catch (const std::invalid_argument &) {
    }
    return failures;
}
