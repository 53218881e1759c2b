// Calls whose exceptions land: in handlers, in clean-ups, in both, in cold parts.
extern "C" int out(long);

struct Guard {
    long value;
    ~Guard() { out(value); }
};

extern "C" void catches(long n) {
    for (long i = 0; i < n; i++) {
        try {
            out(i);
            Guard guard{i};
            out(i + 1);
        } catch (int error) {
            for (int j = 0; j < error; j++)
                out(j);
        } catch (const char *) {
            out(3);
            throw;
        }
    }
}

extern "C" long cleans(long n) {
    Guard first{n};
    if (__builtin_expect(out(n), 0)) {
        Guard second{n + 1};
        return out(2) + out(3);
    }
    return out(4);
}

extern "C" void nothing(long n) noexcept { out(n); }
