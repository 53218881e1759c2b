// Lambdas that are inlined: several of a procedure, two of a line, one in another, of overloads, of a member, generic.
namespace app {
volatile double sink;
template <class F> inline double twice(F f, double x) {
    return f(f(x));
}
__attribute__((noinline)) static double run(double x) {
    double y = x;
    y += twice([](double x) { return x * x + sink; }, x);
    y += twice([](double x) { return x - sink; }, y) * twice([](double x) { return x / sink; }, y);
    auto outer = [y](double x) {
        return twice([y](double x) { return x + y * sink; }, x) + sink;
    };
    y += outer(x);
    struct { double operator()(double x) const { return x * sink + 1; } } written;
    return twice(written, y);
}
__attribute__((noinline)) static double run(int x) {
    double y = x + sink;
    return twice([](double x) { return x * 7 + sink; }, y);
}
namespace {
struct Scale {
    double both(int n) const { auto by = [](auto x) { return x * sink; }; return by(n) + by(n * 0.5); }
};
} // namespace
} // namespace app

int main(int argc, char **) {
    app::Scale scale;
    app::sink = app::run(argc * 0.5) + app::run(argc) + scale.both(argc);
    return 0;
}
