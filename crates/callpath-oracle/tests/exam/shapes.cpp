// What compilers make of C++: exceptions through several kinds of frames, virtual calls, containers, streams, closures,
// destructors on the way, coroutines of the standard's own kind left out.
#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <numeric>
#include <sstream>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

namespace {

struct Trouble : std::runtime_error {
    Trouble(std::string what, int code) : std::runtime_error(std::move(what)), code(code) {}
    int code;
};

struct Guard {
    explicit Guard(int &count) : count(count) { ++count; }
    ~Guard() { --count; }
    int &count;
};

struct Shape {
    virtual ~Shape() = default;
    virtual double area() const = 0;
    virtual std::string name() const { return "shape"; }
};

struct Named {
    virtual ~Named() = default;
    virtual std::string title() const = 0;
};

struct Circle : Shape {
    explicit Circle(double r) : r(r) {}
    double area() const override { return 3.14159265358979 * r * r; }
    std::string name() const override { return "circle"; }
    double r;
};

// Two bases: calls go through thunks.
struct Box : Shape, Named {
    Box(double a, double b) : a(a), b(b) {}
    double area() const override {
        if (a < 0) throw Trouble("negative box", 7);
        return a * b;
    }
    std::string title() const override { return "box of " + std::to_string(a); }
    double a, b;
};

__attribute__((noinline)) double total(const std::vector<std::unique_ptr<Shape>> &shapes) {
    return std::accumulate(shapes.begin(), shapes.end(), 0.0, [](double sum, const auto &shape) { return sum + shape->area(); });
}

int alive = 0;

__attribute__((noinline)) int deep(int n, const std::function<int(int)> &leaf) {
    Guard guard(alive);
    if (n == 0) return leaf(alive);
    int array[n];
    std::iota(array, array + n, 0);
    return deep(n - 1, leaf) + array[n / 2];
}

__attribute__((noinline)) int rethrown(int n) {
    try {
        return deep(n, [](int i) -> int { throw Trouble("deep", i); });
    } catch (const Trouble &trouble) {
        if (trouble.code > 5) throw;
        return trouble.code;
    }
}

__attribute__((noinline)) int nested(int n) {
    try {
        try {
            return rethrown(n);
        } catch (const std::logic_error &) {
            return -1;
        }
    } catch (const std::exception &e) {
        std::ostringstream text;
        text << e.what() << ' ' << n << ' ' << alive;
        std::cout << text.str() << '\n';
        return static_cast<int>(text.str().size());
    }
}

int quiet() noexcept {
    try {
        std::vector<int> none;
        return none.at(3);
    } catch (const std::out_of_range &) {
        return 4;
    }
}

template <typename Map> __attribute__((noinline)) std::size_t count_words(const std::string &text) {
    Map counts;
    std::istringstream words(text);
    for (std::string word; words >> word;) ++counts[word];
    std::size_t most = 0;
    for (const auto &[word, count] : counts) most = std::max<std::size_t>(most, count + word.size());
    return most;
}

struct Static {
    Static() { std::cout << "begun\n"; }
    ~Static() { std::cout << "over\n"; }
} statics;

}  // namespace

int main() {
    std::vector<std::unique_ptr<Shape>> shapes;
    for (int i = 0; i < 5; i++) {
        shapes.push_back(std::make_unique<Circle>(i));
        shapes.push_back(std::make_unique<Box>(i, i + 1));
    }
    std::sort(shapes.begin(), shapes.end(), [](const auto &a, const auto &b) { return a->area() > b->area(); });
    std::cout << total(shapes) << '\n';
    shapes.push_back(std::make_unique<Box>(-1, 1));
    try {
        std::cout << total(shapes) << '\n';
    } catch (const Trouble &trouble) {
        std::cout << trouble.what() << ' ' << trouble.code << '\n';
    }
    for (const auto &shape : shapes) {
        if (auto named = dynamic_cast<Named *>(shape.get())) std::cout << named->title() << ' ' << shape->name() << '\n';
    }
    for (int i = 0; i < 12; i += 3) std::cout << nested(i) << '\n';
    const std::string text = "a walk is a path is a walk of a kind that is its own";
    std::cout << quiet() << count_words<std::map<std::string, int>>(text) << count_words<std::unordered_map<std::string, int>>(text) << '\n';
    return 0;
}
