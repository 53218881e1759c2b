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

// The root does not vary: it is moved out.
void invariant(double *values, long n, double *by) {
    for (long i = 0; i < n; i++) { //@ loop invariant: invariant
        double root = *by * *by + 1.0;
        values[i] = values[i] / root;
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
