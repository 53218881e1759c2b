// Handlers and clean-ups: control comes to them from calls only, and goes back into the loop or leaves it.
#define INLINED inline __attribute__((always_inline))
extern "C" int out(long);

// A handler in a loop goes on with it.
extern "C" void tries(long n) {
    for (long i = 0; i < n; i++) { //@ loop tries: tries
        try {
            out(i);
            out(i + 1);
        } catch (int) {
            out(i + 2); //@ line handled: tries > tries
        }
    }
}

// A loop in a handler, itself in a loop, and one in a handler that is in none.
extern "C" void handles(long n) {
    for (long i = 0; i < n; i++) { //@ loop attempts: handles
        try {
            out(i);
        } catch (int error) {
            for (long j = 0; j < error; j++) //@ loop recovers: handles > attempts
                out(j);
            out(i + 3); //@ line after: handles > attempts
        }
    }
    try {
        out(n);
    } catch (int error) {
        while (error-- > 0) //@ loop last: handles
            out(error);
    }
}

// The loop goes on only by its handler.
extern "C" void retries(long n) {
    for (;;) { //@ may loop retries: retries
        try {
            out(n); //@ may loop retries: retries
            return;
        } catch (int error) {
            n += error;
            out(n + 7); //@ line retry: retries > retries
        }
    }
}

// A clean-up with a loop of its own, of what was inlined.
struct Drain {
    long n;
    INLINED ~Drain() {
        for (long i = 0; i < n; i++) //@ may loop drains: drained > rounds > ~Drain(), drained > rounds > ~Drain()
            out(i);
    }
};

extern "C" void drained(long n) {
    for (long i = 0; i < n; i++) { //@ loop rounds: drained
        Drain drain{i};
        out(i + 1);
        out(i + 2);
    }
}

// A handler that leaves the loop.
extern "C" long leaves(long n) {
    long total = 0;
    for (long i = 0; i < n; i++) { //@ loop leaving: leaves
        try {
            total += out(i);
        } catch (int error) {
            return out(error);
        }
    }
    return total;
}

// A handler that goes on with the loop; its entry and what opens the procedure are before it.
extern "C" void works(long n) {
    while (true) { //@ clang O0 loop works: works; gcc O1+ !g1 loop works: works
        try { //@ gcc O0 loop works: works
            out(n); //@ clang O1+ loop works: works; gcc O1+ g1 loop works: works
            n++;
            continue;
        } catch (...) {
            out(n + 5); //@ line worked: works > works
        }
    }
}

extern "C" long spins(long n, long m) {
    long total = n * m; //@ line before: spins
    total += out(total); //@ line called: spins
    while (true) { //@ clang O0 loop spins: spins; gcc O1+ !g1 loop spins: spins
        try { //@ gcc O0 loop spins: spins
            total += out(n); //@ clang O1+ loop spins: spins; gcc O1+ g1 loop spins: spins
            if (total > 100)
                return total;
            out(3);
            continue;
        } catch (...) {
            n += 5;
            out(n + 7); //@ line caught: spins > spins
        }
    }
}
