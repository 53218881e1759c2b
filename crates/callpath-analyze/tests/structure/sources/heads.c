// Where loops begin: those without a test of their own, those that begin with another, and what comes before them.
int out(long);

// Two loops with one header, told apart only where the compiler marks statements without code.
long together(const char *p, long n) {
    while (1) { //@ gcc O1+ !g1 loop turns: together; clang O0 loop turns: together
        while (n > 0 && p[n]) //@ gcc O1+ !g1 shared loop back: together > turns; gcc O0 loop back: together; gcc O0 shared loop back: together > back; gcc O1+ g1 loop back: together; clang O0 loop back: together > turns; clang O1+ loop back: together
            n--;
        if (n <= 0)
            return n;
        out(n);
        n -= 2;
    }
}

// One loop, with the same machine code.
long continues(const char *p, long n) {
    while (1) { //@ clang O0 loop turns: continues; gcc O1-3 !g1 loop turns: continues
        if (n > 0 && p[n]) { //@ gcc Os loop turns: continues; clang O1+ loop turns: continues; gcc O0 loop turns: continues; gcc O1+ g1 loop turns: continues
            n--;
            continue;
        }
        if (n <= 0)
            return n;
        out(n);
        n -= 2;
    }
}

// Parameters are moved where the loop begins; that is not its line.
long opened(const char *p, long n) {
    while (1) { //@ clang O0 loop turns: opened; gcc O1+ !g1 loop turns: opened
        if (p[n] == 3) { //@ clang O1+ loop turns: opened; gcc O0 loop turns: opened; gcc O1+ g1 loop turns: opened
            n -= 2;
            continue;
        }
        if (n <= 0)
            return n;
        out(n);
        n -= 2;
    }
}

void endless(long n) {
    for (;;) { //@ clang loop endless: endless; gcc O1+ !g1 loop endless: endless
        out(n); //@ gcc O0 loop endless: endless; gcc O1+ g1 loop endless: endless
        out(n + 1);
        n += 2;
    }
}

void after_a_call(long n) {
    out(n);
    while (1) { //@ clang loop endless: after_a_call; gcc O1+ !g1 loop endless: after_a_call
        n += out(n); //@ gcc O0 loop endless: after_a_call; gcc O1+ g1 loop endless: after_a_call
        n ^= out(n + 1);
    }
}

void until(long n) {
    out(n);
    do { //@ gcc O1+ !g1 loop until: until
        out(n); //@ clang loop until: until; gcc O0 loop until: until; gcc O1+ g1 loop until: until
        n += 1;
    } while (out(n) != 3);
}

// A break in its middle is no test of an endless loop's; clang may make one of it, at the end.
void breaks(long n) {
    out(n);
    for (;;) { //@ clang O0 loop breaks: breaks; gcc O1+ !g1 loop breaks: breaks
        out(n + 1); //@ clang O1+ may loop breaks: breaks; gcc O0 loop breaks: breaks; gcc O1+ g1 loop breaks: breaks
        if (out(n + 2) == 7) //@ clang O1+ may loop breaks: breaks
            break;
        out(n + 3);
    }
    out(n + 4);
}

// Loops that begin with a loop and end with one. Optimized, the machine code of two of them is one.
long words(const char *p, long n) {
    for (;;) { //@ clang O0 loop all: words; gcc O1 loop all: words; gcc O2+ may loop all: words; clang O1+ may loop all: words
        while (p[n] == ' ') //@ clang O0 loop blanks: words > all; gcc O1 loop blanks: words > all; gcc O0 loop blanks: words; gcc O0 shared loop blanks: words > blanks; gcc O2+ may loop blanks: words, words > all; clang O1+ may loop blanks: words, words > all
            n++;
        if (!p[n]) //@ gcc g1 may loop word: words > blanks
            break;
        while (p[n] != ' ') //@ clang O0 loop word: words > all; gcc O0 loop word: words > blanks; gcc O1 loop word: words > all; gcc O2+ may loop word: words > all, words > blanks; clang O1+ may loop word: words > all, words > blanks
            n++;
    }
    return n;
}

// A loop that is the body of an endless one.
void around(const char *p, long n) {
    for (;;) { //@ clang O0 loop endless: around; gcc O1+ !g1 loop endless: around
        for (long i = 0; i < n; i++) //@ clang O0 loop each: around > endless; gcc O1+ !g1 loop each: around > endless; clang O1+ loop each: around, around > each; gcc O0 loop each: around, around > each; gcc O1+ g1 loop each: around, around > each
            out(p[i]);
        n += out(n);
    }
}
