/* Procedures whose code lies in two places, and such that end in other ways than by a return. */
extern int out(int);
extern int in(void);
extern void abort(void) __attribute__((noreturn));
extern void complain(const char *) __attribute__((cold));

static int __attribute__((noinline, noclone)) sum(int *p, int n) {
    int s = 0;
    for (int i = 0; i < n; i++) {
        if (__builtin_expect(p[i] < 0, 0)) {
            complain("negative");
            out(i);
            s = 0;
            continue;
        }
        s += out(p[i]);
    }
    return s;
}

int uses_sum(int *p) { return sum(p, 3) + sum(p, out(4)); }

int leaves(int v) {
    if (__builtin_expect(v == 77, 0)) {
        complain("77");
        abort();
    }
    return out(v) + 1;
}

int cases(int v, int *p) {
    int r = out(v);
    switch (v) {
    case 0: r += out(1); break;
    case 1: r -= in(); break;
    case 2: complain("two"); complain("of them"); *p = in(); break;
    case 3: r *= out(3); break;
    case 4: complain("four"); abort();
    case 5: r ^= in(); break;
    case 6: complain("six"); r = 0; break;
    }
    return r + in();
}

static int __attribute__((noinline, noclone)) target(int v) { return out(v) * 2 + in(); }
int tail(int v) { return target(v + 1); }
int other_tail(int v) { out(v); return target(v - 1); }

struct table { int a; int (*run)(int); };
int indirect_tail(struct table *t, int v) {
    out(v);
    return t->run(v + t->a);
}

static void __attribute__((noinline, noclone)) stop(int v) {
    out(v);
    abort();
}
int fails(int v) {
    if (v > 3)
        stop(v);
    return out(v) + 1;
}
int comes_back(int v) { return out(v) + uses_sum(&v) + 1; }
int trap(int v) {
    if (out(v))
        __builtin_trap();
    return in() + 2;
}
