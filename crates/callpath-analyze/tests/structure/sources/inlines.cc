// Inlined code with loops, and loops with inlined code. It is inlined at all levels.
#define INLINED inline __attribute__((always_inline))
extern "C" int out(long);

#include "inlines_array.h"
#include "inlines_tree.h"

// Figures 6 and 7: the loop's test is inlined, its body is not.
extern "C" void init(Array &array) {
    out(1);
    for (long i = 0; i < array.size(); i++) { //@ loop fills: init; inlined size: init > fills
        out(i);
        out(i + 1);
    }
}

// Figure 5: the same procedure around the loop and in it.
extern "C" void zoo(Array &array) {
    array.moo(1); //@ inlined moo: zoo
    for (long i = 0; i < 100 && out(0); i++) { //@ loop animals: zoo
        array.moo(i); //@ inlined moo: zoo > animals
        out(i);
    }
}

// A loop in inlined code inside a loop of the host.
extern "C" void host(Array *arrays, long n) {
    for (long i = 0; i < n; i++) { //@ loop arrays: host
        arrays[i].print(); //@ inlined print: host > arrays
        out(i);
    }
}

// Twice the same in a row, each with its loop.
extern "C" void both(Array &one, Array &two) {
    one.print(); //@ inlined print: both
    two.print(); //@ inlined print: both
}

// As in MOAB: an inlined procedure calls a template of a library, which loops over a comparison of the program's own.
struct Later {
    INLINED bool operator()(long a, long b) const { return out(a) < out(b); }
};

INLINED const Node *find(const Tree<Later> &tree, long key) {
    return tree.find(key); //@ inlined find: get_adjacencies > entities > find()
}

extern "C" long get_adjacencies(const Tree<Later> &tree, const long *keys, long n) {
    long found = 0;
    for (long i = 0; i < n; i++) { //@ loop entities: get_adjacencies
        if (find(tree, keys[i])) //@ inlined find: get_adjacencies > entities
            found += out(i);
    }
    return found;
}

// A class in a procedure; its last member function ends where the procedure goes on.
extern "C" void with_class(long n) {
    struct Local {
        long value;
        INLINED void twice() const {
            out(value);
            out(2 * value);
        }
        INLINED void each(long n) const {
            for (long i = 0; i < n; i++) //@ loop members: with_class > lasts > each()
                out(i + value);
        }
    };
    for (long i = 0; i < n; i++) { //@ loop lasts: with_class
        Local local = {i};
        local.twice(); //@ inlined twice: with_class > lasts
        local.each(n); //@ inlined each: with_class > lasts
        out(i);
    }
}

// Inlined everywhere, so that no procedure of its own is left.
static INLINED long gone(long n) {
    long total = 0;
    for (long i = 0; i < n; i++) //@ loop gone: uses > gone(), uses_again > gone()
        total += out(i);
    return total;
}

extern "C" long uses(long n) {
    return gone(n) + 1; //@ inlined gone: uses
}

extern "C" long uses_again(long n) {
    out(n);
    return gone(n + 3) + 2; //@ inlined gone: uses_again
}

// Two procedures of one object code.
extern "C" void original(long n) {
    for (long i = 0; i < n; i++) //@ loop alias: original
        out(i);
}
extern "C" void other_name(long n) __attribute__((alias("original")));

// Part of it is never run, and lies elsewhere.
extern "C" void cold(long n) {
    for (long i = 0; i < n; i++) { //@ loop warm: cold
        if (__builtin_expect(out(i), 0)) {
            for (long j = 0; j < i; j++) //@ loop chilly: cold > warm
                out(j);
            out(8);
        }
    }
}

// Three deep: the innermost has a loop, and is called twice in one line.
INLINED long leaf(long n) {
    long total = 0;
    while (n-- > 0) //@ loop leaf: deep > middle() > leaf(), deep > around > middle() > leaf()
        total += out(n);
    return total;
}

INLINED long middle(long n) {
    return leaf(n) + 1; //@ inlined leaf: deep > middle(), deep > around > middle()
}

extern "C" long deep(long n) {
    long total = middle(n); //@ inlined middle: deep
    out(total);
    for (long i = 0; i < n; i++) { //@ loop around: deep
        out(i);
        total += middle(i); //@ inlined middle: deep > around
        out(total);
    }
    return total;
}

// Iterators: every part of the loop's header is inlined, its line only a call's.
struct Iterator {
    long at;
    INLINED bool operator!=(const Iterator &other) const { return at != other.at; }
    INLINED long operator*() const { return at; }
    INLINED void operator++() { at++; }
};
struct Range {
    long n;
    INLINED Iterator begin() const { return {0}; }
    INLINED Iterator end() const { return {n}; }
};

extern "C" void iterates(const Range &range) {
    for (long value : range) { //@ loop iterates: iterates
        out(value);
        out(value + 1);
    }
}

// The whole body is inlined, its test, too: the loop is the host's all the same.
extern "C" void all_inlined(Array *arrays, long n) {
    for (Iterator i = {0}; i != Iterator{n}; ++i) //@ loop all: all_inlined
        arrays[*i].moo(*i); //@ inlined moo: all_inlined > all
}

// Thrown through, and landing pads.
struct Guard {
    long value;
    INLINED ~Guard() { out(value); }
};

extern "C" void guarded(long n) {
    for (long i = 0; i < n; i++) { //@ loop guards: guarded
        Guard guard = {i};
        out(i + 1);
    }
}
