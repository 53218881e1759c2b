// Loops of all kinds, nested and side by side; each calls out, so that no compiler can change its shape much.
int out(long);

void nest(long rows, long columns) {
    for (long i = 0; i < rows; i++) { //@ loop rows: nest
        out(i);
        for (long j = 0; j < columns; j++) //@ loop columns: nest > rows
            out(j);
        long left = i;
        while (out(left)) { //@ loop while: nest > rows
            left -= 1;
            out(left + 1);
        }
    }
}

void row(long n) {
    for (long i = 0; i < n; i++) { //@ loop first: row
        if (out(i))
            continue;
        out(i + 1);
    }
    for (long i = 0; i < n; i++) { //@ loop second: row
        if (out(i) == 5)
            break;
        out(i + 2);
    }
}

void until(long n) {
    do { //@ gcc O1+ !g1 loop until: until
        out(n); //@ clang loop until: until; gcc O0 loop until: until; gcc O1+ g1 loop until: until
        n += 1;
    } while (out(n) != 3);
}

void forever(long n) {
    out(n);
    for (;;) { //@ clang loop forever: forever; gcc O1+ !g1 loop forever: forever
        out(n + 1); //@ gcc O0 loop forever: forever; gcc O1+ g1 loop forever: forever
        out(n + 2);
    }
}

void by_goto(long n) {
again:
    out(n); //@ loop again: by_goto
    if (out(n + 1))
        goto again;
    out(n + 2);
}

// Two ways into one loop. Which of its lines is in the header depends on the compiler.
void irreducible(long n) {
    if (out(n))
        goto middle;
    for (;;) { //@ gcc O2-3 !g1 loop twice: irreducible
        out(1); //@ clang O0 loop twice: irreducible; gcc g1 loop twice: irreducible
middle:
        out(2);
        if (out(3)) //@ clang O1+ loop twice: irreducible; gcc O0-1 loop twice: irreducible; gcc Os loop twice: irreducible
            break;
    }
}

// A loop in a loop of the same line. More of one line: one_line.c.
void one_line(long n) {
    for (long i = 0; i < n; i++) { for (long j = 0; j < i; j++) out(j); out(i); } //@ loop both: one_line, one_line > both
}

#define EACH(i, n) for (long i = 0; i < (n); i++)
#define TWICE(n) EACH(a, n) { out(a); }

void macros(long n) {
    EACH(i, n) { //@ loop each: macros
        out(i);
        TWICE(i) //@ loop inside: macros > each
        out(i + 1);
    }
}

void with_switch(const char *text) {
    for (; *text; text++) { //@ loop letters: with_switch
        switch (*text) {
        case 'a': out(1); break;
        case 'b': out(2); break;
        case 'c': out(3); break;
        case 'd': out(4); break;
        case 'e': return;
        default: out(5);
        }
    }
}

// A compiler makes a loop of it, where optimizing: it stands where it is decided whether it goes on.
void tail(long n) {
    if (out(n)) //@ may loop again: tail
        tail(n - 1);
}

// Of a header in several lines gcc's line map has the test's in the loop, clang's its first.
void several_lines(long n) {
    for (long i = 0; //@ clang loop header: several_lines
         i < n; //@ gcc loop header: several_lines
         i++) {
        out(i);
        out(i + 1);
    }
}

void many_continues(long n) {
    for (long i = 0; i < n; i++) { //@ loop continues: many_continues
        if (out(i))
            continue;
        if (out(i + 1) > 3) {
            out(5);
            continue;
        }
        if (out(i + 2) < 3)
            break;
        out(6);
    }
    out(n);
}

void leaves_both(long n) {
    for (long i = 0; i < n; i++) { //@ loop outer: leaves_both
        for (long j = 0; j < i; j++) { //@ loop within: leaves_both > outer
            if (out(j))
                goto done;
        }
        out(i);
    }
done:
    out(n);
}

// Three deep, with nothing between them.
void bare(long n) {
    for (long i = 0; i < n; i++) //@ loop one: bare
        for (long j = 0; j < n; j++) //@ loop two: bare > one
            for (long k = 0; k < n; k++) //@ loop three: bare > one > two
                out(i + j + k);
}

// Where two tests are made in one line.
void both_tests(const long *list, long n) {
    while (n > 0 && out(list[n]) && out(n)) { //@ loop tests: both_tests
        n--;
        out(3);
    }
}

// A copy for one value of its parameter, under another symbol.
static __attribute__((noinline)) void copied(long n, long step) {
    for (long i = 0; i < n; i += step) //@ loop steps: copied
        out(i + step);
}

void copies(long n) {
    copied(n, 3);
    copied(n + 1, 3);
}
