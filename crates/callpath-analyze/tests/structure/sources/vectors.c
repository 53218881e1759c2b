// Loops that compilers unroll, peel, and turn into vectors with a rest: one loop in the source is one loop.

void scale(float *restrict to, const float *restrict from, float by, long n) {
    for (long i = 0; i < n; i++) //@ loop scale: scale
        to[i] = by * from[i] + to[i];
}

long sum(const long *values, long n) {
    long total = 0;
    for (long i = 0; i < n; i++) { //@ loop sum: sum
        total += values[i];
    }
    return total;
}

void product(long n, double (*a)[64], double (*b)[64], double (*c)[64]) {
    for (long i = 0; i < n; i++) { //@ loop rows: product
        for (long j = 0; j < n; j++) { //@ loop columns: product > rows
            double s = 0;
            for (long k = 0; k < n; k++) //@ loop inner: product > rows > columns
                s += a[i][k] * b[k][j];
            c[i][j] = s;
        }
    }
}

// The test does not vary: a compiler makes two loops of it.
void unswitch(int *values, long n, int flag) {
    for (long i = 0; i < n; i++) { //@ loop unswitched: unswitch
        values[i] += 3;
        if (flag)
            values[i] *= values[i];
    }
}

// The divisor does not vary: it is moved out, but is of a line in the loop.
void invariant(double *restrict values, long n, const double *restrict by) {
    for (long i = 0; i < n; i++) { //@ loop invariant: invariant
        values[i] = values[i] / (*by * *by + 1.0); //@ line divided: invariant > invariant
    }
}

long count(const unsigned char *text) {
    long lines = 0;
    while (*text) { //@ loop count: count
        lines += *text == '\n';
        text++;
    }
    return lines;
}

// Gone where the compiler unrolls it whole.
long whole(const long *values) {
    long total = 0;
    for (int i = 0; i < 4; i++) //@ O0 loop whole: whole; may O1+ loop whole: whole
        total += values[i];
    return total;
}

// The test is true for the first part of the values: a loop each.
void split(int *values, long n, long limit) {
    for (long i = 0; i < n; i++) { //@ loop split: split
        if (i < limit)
            values[i] += 5;
        else
            values[i] -= 7;
    }
}

// What is set and what is copied becomes two loops, or calls.
void distributed(long *restrict zeros, long *restrict to, const long *restrict from, long n) {
    for (long i = 0; i < n; i++) { //@ O0 loop distributed: distributed; may O1+ loop distributed: distributed
        zeros[i] = 0;
        to[i] = from[i];
    }
}

// Two loops of the source with different lines stay two, whatever they have in common.
void alike(float *values, long n, float by) {
    for (long i = 0; i < n; i++) //@ loop first: alike
        values[i] += by;
    for (long i = 0; i < n; i++) //@ loop second: alike
        values[i] *= by;
}

// Outer iterations are unrolled and jammed together.
void jammed(long n, float (*restrict a)[128], const float *restrict b) {
    for (long i = 0; i < 128; i++) //@ loop lines: jammed
        for (long j = 0; j < n; j++) //@ loop cells: jammed > lines
            a[j][i] += b[i] * a[j][i];
}

// A header in several lines: parts that were split may stand in different ones of them.
long several(const int *values, long n) {
    long total = 0;
    for (long i = 0; //@ clang loop header: several
         i < n && //@ gcc loop header: several
         i < 1000;
         i++) {
        if (values[i] > 3)
            total += values[i];
    }
    return total;
}
