// Names, templates and lambdas whose linker's names have to be demangled.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace shapes {
template <typename T, int N> struct Box {
    T items[N];
    __attribute__((noinline)) T sum() const {
        T total{};
        for (const T &item : items)
            total += item;
        return total;
    }
};
struct Base {
    virtual ~Base() = default;
    virtual int area(int) const = 0;
};
struct Square : Base {
    int area(int side) const override { return side * side; }
    operator bool() const { return true; }
};
__attribute__((noinline)) int apply(const std::vector<int> &items, int (*f)(int)) {
    int total = 0;
    for (int item : items)
        total += f(item);
    return total;
}
} // namespace shapes

int main(int argc, char **) {
    shapes::Box<long, 3> box{{1, 2, argc}};
    shapes::Base *shape = new shapes::Square;
    std::map<std::string, std::vector<int>> names;
    names["a"].push_back(shape->area(argc));
    std::vector<int> items{3, 1, argc};
    std::sort(items.begin(), items.end(), [](int a, int b) { return a > b; });
    int total = shapes::apply(items, [](int x) { return x * 2; });
    delete shape;
    return static_cast<int>(box.sum()) + total + static_cast<int>(names.size());
}
