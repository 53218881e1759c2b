// Each procedure has one kind of clause, or a nest of them. tests/exception_tables.rs says which.
#include <new>
#include <stdexcept>

struct Guard {
    explicit Guard(int n) : n(n) {}
    ~Guard();
    int n;
};

extern "C" {
int may_throw(int);

int by_type(int n) {
    try {
        return may_throw(n);
    } catch (const std::runtime_error &) {
        return 1;
    } catch (int) {
        return 2;
    }
}

int all(int n) {
    try {
        return may_throw(n);
    } catch (...) {
        return 3;
    }
}

int cleans(int n) {
    Guard guard(n);
    return may_throw(n);
}

int nested(int n) {
    try {
        Guard guard(n);
        try {
            return may_throw(n);
        } catch (const std::bad_alloc &) {
            return may_throw(n + 1);
        }
    } catch (...) {
        return 4;
    }
}

int must_not(int n) noexcept {
    return may_throw(n);
}

int listed(int n) throw(int, std::bad_alloc) {
    return may_throw(n);
}

int none(int n) throw(std::logic_error) {
    try {
        return may_throw(n);
    } catch (long) {
        return 5;
    }
}
}
