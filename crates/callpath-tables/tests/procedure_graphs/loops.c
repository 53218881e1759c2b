/* Each procedure's name says its loops as a person sees them: one digit for each, its depth, in the order of the text.
   The calls keep compilers from turning one loop into another number of them. */
extern int out(int);
extern int in(void);

void none_(int n) { if (n) out(n); else in(); }

void while_0(int n) { while (in()) out(n); }

void do_0(int n) { do out(n); while (in()); }

int two_00(int n) {
    for (int i = 0; i < n; i++) out(i);
    while (in()) out(n);
    return n;
}

int nest_012(int n) {
    for (int i = 0; in(); i++) {
        for (int j = 0; out(j) < n; j++)
            while (out(j + i)) out(n);
        out(i);
    }
    return n;
}

int siblings_0110(int n) {
    while (in()) {
        while (out(1)) out(n);
        if (in()) {
            do out(3); while (in());
        }
    }
    while (out(2)) in();
    return n;
}

int leaves_01(int *p, int n) {
    while (in()) {
        for (;;) {
            if (out(1)) return 5;
            if (out(2)) break;
            if (out(3)) goto end;
            out(*p);
        }
        out(n);
    }
end:
    return out(9);
}

int switched_0(const unsigned char *p) {
    int sum = 0;
    for (;;) {
        switch (*p++) {
        case 0: sum += out(1); break;
        case 1: sum -= out(2); break;
        case 2: sum *= in(); break;
        case 3: out(sum); break;
        case 4: sum = in(); break;
        case 5: return sum;
        case 6: sum += in() * 3; break;
        }
    }
}

int deep_01234(int n) {
    while (out(0)) {
        out(10);
        while (out(1)) {
            out(11);
            while (out(2)) {
                out(12);
                while (out(3)) {
                    out(13);
                    while (out(4)) out(14);
                }
            }
        }
    }
    return n;
}
