// A library that comes while `comes` runs. UNIT names its function, so that two of them differ.
static volatile long sum;
static volatile long ended;

struct Guard {
    ~Guard() { ended = ended + 1; }
};

extern "C" {
__attribute__((noinline)) long deep(int n) { return n == 0 ? 0 : 1 + deep(n - 1); }

__attribute__((noinline)) void UNIT(int value) {
    if (value % 3)
        sum = sum + value;
    else
        sum = sum - deep(2);
}

// Before it is relocated all is there that counts.
__attribute__((constructor)) static void begin() { UNIT(1); }

__attribute__((noinline)) static void call(void (*back)(int), int value) {
    Guard guard;
    back(value);
    ended = ended - 1;
}

void run(int units, void (*back)(int)) {
    for (int value = 0; value < units; value++) {
        UNIT(value);
        call(back, value);
    }
}
}
