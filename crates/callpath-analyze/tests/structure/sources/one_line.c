// Several loops on one line: each is one, whatever compilers make of it, and no two are one.
int out(long);

void beside(long n) {
    for (long i = 0; i < n; i++) out(i); for (long j = 0; j < n; j++) out(j + 1); //@ loop calls: beside, beside
}

// Each becomes a loop of vectors and a rest.
void vectors(float *restrict a, float *restrict b, float x, long n) {
    for (long i = 0; i < n; i++) a[i] += x; for (long j = 0; j < n; j++) b[j] *= x; //@ loop sums: vectors, vectors
}

// Each becomes a loop for each case of the test, of vectors and a rest.
void cases(float *restrict a, float *restrict b, int flag, long n) {
    for (long i = 0; i < n; i++) { a[i] += 3; if (flag) a[i] *= a[i]; } for (long i = 0; i < n; i++) { b[i] += 3; if (flag) b[i] *= b[i]; } //@ loop cases: cases, cases
}

// One around two others.
void within(long n) {
    for (long i = 0; i < n; i++) { for (long j = 0; j < i; j++) out(j); for (long k = 0; k < i; k++) out(-k); out(i); } //@ loop three: within, within > three, within > three
}

void of_all_kinds(const char *p) {
    while (*p == ' ') p++; while (out(*p) && *p != ' ') p++; do out(*p); while (*++p); //@ loop kinds: of_all_kinds, of_all_kinds, of_all_kinds
}

// The second has further lines.
void goes_on(long n) {
    for (long i = 0; i < n; i++) out(i); for (long i = 0; i < n; i++) { //@ loop goes_on: goes_on, goes_on
        out(i + 1);
        out(i + 2);
    }
}

// The same procedure is inlined into both.
static inline __attribute__((always_inline)) long twice(long n) {
    return out(n) + out(n + 1);
}

void inlined(long n) {
    for (long i = 0; i < n; i++) out(twice(i)); for (long j = 0; j < n; j++) out(twice(j)); //@ loop inlined: inlined, inlined; inlined twice: inlined > inlined, inlined > inlined
}

// Compilers say the same column of all that a macro stands for: nothing tells them apart.
#define BOTH(n) for (long i = 0; i < n; i++) out(i); for (long j = 0; j < n; j++) out(j + 1)

void by_macro(long n) {
    out(n);
    BOTH(n); //@ loop both: by_macro
}
