/* Switches as programs have them. */
extern int out(int), in(void);
extern void die(void) __attribute__((noreturn, cold));
extern int global;

int dense(int i) {
    switch (i) {
    case 0: return out(7);
    case 1: return out(3);
    case 2: out(1); return in();
    case 3: return out(11);
    case 4: out(5); break;
    case 5: return in() + out(2);
    case 6: return out(in());
    case 9: return out(9);
    }
    return out(100);
}

int shifted(long long i, int *p) {
    out(1);
    switch (i) {
    case -5: out(1); *p = 1; break;
    case -4: out(2); *p = in(); break;
    case -3: out(3); break;
    case -2: return out(4);
    case -1: out(5); *p += 2; break;
    case 0: out(6); break;
    case 1: in(); break;
    }
    return *p;
}

int high(unsigned short *p) {
    switch (*p) {
    case 1000: return out(10);
    case 1001: return in() + 1;
    case 1002: return out(12) * 3;
    case 1003: out(13); out(14); return 5;
    case 1005: return out(15) + in();
    case 1006: return in() - 3;
    case 1007: return out(17);
    }
    return 0;
}

/* The compiler is told that there are no others: nothing compares. */
int unbounded(unsigned i) {
    switch (i) {
    case 0: return out(0) + 1;
    case 1: return in() + 2;
    case 2: return out(2) + 3;
    case 3: out(3); return in();
    case 4: return out(4) - 5;
    case 5: return in() * 6;
    default: __builtin_unreachable();
    }
}

int masked(unsigned i) {
    switch (i & 7) {
    case 0: return out(0) + 1;
    case 1: return in() + 2;
    case 2: return out(2) + 3;
    case 3: out(3); return in();
    case 4: return out(4) - 5;
    case 5: return in() * 6;
    case 6: return in() * 7 + out(3);
    case 7: return out(in() + 1);
    }
    return 0;
}

/* One table in another's case, both in a loop, with values that live across. */
int nested(const unsigned char *p, int n, int a, int b, int c) {
    int sum = 0;
    for (int i = 0; i < n; i++) {
        switch (p[i]) {
        case 'a': sum += out(a); break;
        case 'b': sum -= out(b); break;
        case 'c': sum *= out(c) + a; break;
        case 'd': sum ^= in(); break;
        case 'e':
            switch (p[++i]) {
            case 1: sum += in() + b; break;
            case 2: out(sum); break;
            case 3: sum += out(c) * 2; break;
            case 4: return sum;
            case 5: sum = in(); continue;
            case 6: die();
            default: sum--;
            }
            break;
        case 'f': out(i); break;
        case 'g': return out(sum);
        default: if (global) die();
        }
    }
    return sum;
}

/* The index is compared, kept on the stack over calls, and used. */
int spilled(int i, int a, int b, int c, int d, int e, int f) {
    if ((unsigned)i > 6)
        return 0;
    out(a); out(b); out(c); out(d); out(e); out(f);
    switch (i) {
    case 0: return out(a) + b;
    case 1: return out(b) + c;
    case 2: return out(c) + d;
    case 3: return out(d) + e;
    case 4: return out(e) + f;
    case 5: return out(f) + a;
    case 6: return out(a + b) + in();
    }
    return 1;
}

/* Labels as values. */
int interpret(const unsigned char *code) {
    static const void *const labels[] = {&&add, &&sub, &&mul, &&jump, &&end};
    int acc = 0;
    goto *labels[*code++];
add:
    acc += out(acc);
    goto *labels[*code++];
sub:
    acc -= in();
    goto *labels[*code++];
mul:
    acc *= out(3);
    goto *labels[*code++];
jump:
    code += in();
    goto *labels[*code++];
end:
    return acc;
}

/* Distances between labels. */
int interpret_distances(const unsigned char *code, int acc) {
    static const int distances[] = {&&add - &&add, &&sub - &&add, &&mul - &&add, &&end - &&add};
    for (;;) {
        goto *(&&add + distances[*code++]);
    add:
        acc += out(acc);
        continue;
    sub:
        acc -= in();
        continue;
    mul:
        acc *= out(3);
        continue;
    end:
        return acc;
    }
}

/* Procedures, not labels: calls, and one that replaces a call. */
static int (*const handlers[])(int) = {out, dense};
int dispatch(unsigned i, int v) {
    if (i > 1) return 0;
    out(v);
    return handlers[i](v);
}
