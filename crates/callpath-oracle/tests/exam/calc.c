/* A calculator with statements: what compilers make of recursion, tables of jumps, callbacks, errors that jump, frames
   of unknown size, many arguments, structures by value, floating point, tail calls and procedures that never return. */
#include <ctype.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define APART __attribute__((noinline))

/* Errors. */

static jmp_buf on_error;
static char message[200];

__attribute__((noreturn, cold, format(printf, 1, 2))) static void fail(const char *format, ...) {
    va_list list;
    va_start(list, format);
    vsnprintf(message, sizeof message, format, list);
    va_end(list);
    longjmp(on_error, 1);
}

__attribute__((noreturn)) static void die(const char *what) {
    fprintf(stderr, "calc: %s\n", what);
    exit(3);
}

static void *need(void *memory) {
    if (!memory) die("out of memory");
    return memory;
}

/* Names. */

struct name {
    struct name *next;
    unsigned hash;
    double value;
    char text[];
};

static struct name *names[64];

static unsigned hash_of(const char *text, size_t len) {
    unsigned hash = 2166136261u;
    for (size_t i = 0; i < len; i++) hash = (hash ^ (unsigned char)text[i]) * 16777619u;
    return hash;
}

static APART struct name *name_of(const char *text, size_t len) {
    unsigned hash = hash_of(text, len);
    struct name **place = &names[hash % 64];
    for (; *place; place = &(*place)->next)
        if ((*place)->hash == hash && strlen((*place)->text) == len && !memcmp((*place)->text, text, len)) return *place;
    struct name *made = need(malloc(sizeof *made + len + 1));
    made->next = NULL, made->hash = hash, made->value = 0;
    memcpy(made->text, text, len);
    made->text[len] = 0;
    return *place = made;
}

/* Words. */

enum kind { END, NUMBER, NAME, PLUS, MINUS, TIMES, OVER, POWER, LEFT, RIGHT, COMMA, EQUALS, LESS, MORE, BANG, QUESTION, COLON };

struct word {
    enum kind kind;
    double number;
    const char *text;
    size_t len;
};

struct reader {
    const char *at;
    struct word word;
    int depth;
};

static struct word next_word(struct reader *reader) {
    struct word word = {END, 0, reader->at, 1};
    while (isspace((unsigned char)*reader->at)) reader->at++;
    word.text = reader->at;
    char c = *reader->at;
    if (isdigit((unsigned char)c) || c == '.') {
        char *end;
        word.kind = NUMBER;
        word.number = strtod(reader->at, &end);
        word.len = (size_t)(end - reader->at);
    } else if (isalpha((unsigned char)c)) {
        word.kind = NAME;
        for (word.len = 0; isalnum((unsigned char)word.text[word.len]);) word.len++;
    } else {
        switch (c) {
        case 0: word.len = 0; break;
        case '+': word.kind = PLUS; break;
        case '-': word.kind = MINUS; break;
        case '*': word.kind = TIMES; break;
        case '/': word.kind = OVER; break;
        case '^': word.kind = POWER; break;
        case '(': word.kind = LEFT; break;
        case ')': word.kind = RIGHT; break;
        case ',': word.kind = COMMA; break;
        case '=': word.kind = EQUALS; break;
        case '<': word.kind = LESS; break;
        case '>': word.kind = MORE; break;
        case '!': word.kind = BANG; break;
        case '?': word.kind = QUESTION; break;
        case ':': word.kind = COLON; break;
        default: fail("what is `%c` at %d of %d?", c, 1, 2);
        }
    }
    reader->at += word.len;
    return word;
}

static void go_on(struct reader *reader) { reader->word = next_word(reader); }

static APART int is(struct reader *reader, enum kind kind) {
    if (reader->word.kind != kind) return 0;
    go_on(reader);
    return 1;
}

static void expect(struct reader *reader, enum kind kind, const char *what) {
    if (!is(reader, kind)) fail("%s expected before `%.10s`", what, reader->word.text);
}

/* Procedures that expressions may call. */

typedef double (*procedure)(int count, const double *values);

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* A frame of unknown size, and a callback. */
static double median(int count, const double *values) {
    if (count <= 0) fail("median of %d values", count);
    double sorted[count];
    memcpy(sorted, values, sizeof sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, ascending);
    return count % 2 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
}

static double sum(int count, const double *values) {
    double total = 0;
    for (int i = 0; i < count; i++) total += values[i];
    return total;
}

static double largest(int count, const double *values) {
    double most = -INFINITY;
    for (int i = 0; i < count; i++) most = fmax(most, values[i]);
    return most;
}

struct pair {
    double low, high;
    long steps, spare[5];
};

/* A structure in memory that the caller provides. */
static APART struct pair bisect(double (*f)(double, double), double extra, struct pair from) {
    while (from.high - from.low > 1e-12 && from.steps < 200) {
        double middle = (from.low + from.high) / 2;
        if (f(middle, extra) > 0) from.high = middle;
        else from.low = middle;
        from.steps++;
    }
    return from;
}

static double square_less(double x, double y) { return x * x - y; }

static double root(int count, const double *values) {
    if (count != 1 || values[0] < 0) fail("root of %d values", count);
    struct pair found = bisect(square_less, values[0], (struct pair){.high = values[0] + 1});
    return found.low;
}

static double factorial(double n) { return n < 2 ? 1 : n * factorial(n - 1); }

/* Tail calls to and fro. */
static APART int is_odd(unsigned n);
static APART int is_even(unsigned n) { return n == 0 ? 1 : is_odd(n - 1); }
static APART int is_odd(unsigned n) { return n == 0 ? 0 : is_even(n - 1); }

static double even(int count, const double *values) { return count == 1 && is_even((unsigned)values[0]); }

/* More arguments than registers. */
static APART double mixed(int a, double b, long c, double d, char e, float f, short g, double h, int i, double j, int k, double l,
                          long m, double n, int o, double p, double q, double r) {
    return a + b * (double)c - d + e * f - g + h * i - j + k * l - (double)m + n * o + p - q * r;
}

static double mix(int count, const double *v) {
    double x = count > 0 ? v[0] : 1;
    return mixed((int)x, x, 3, x + 1, 'a', 2.5f, 7, x, (int)x, x, 4, x, 9, x, 5, x, x, x);
}

static APART double hanoi(int n, int from, int to, long *moves) {
    if (n == 0) return 0;
    int other = 6 - from - to;
    double before = hanoi(n - 1, from, other, moves);
    ++*moves;
    return before + 1 + hanoi(n - 1, other, to, moves);
}

static double towers(int count, const double *values) {
    long moves = 0;
    return hanoi(count ? (int)values[0] : 3, 1, 3, &moves) + (double)moves;
}

/* A little machine: a table of labels. */
static APART double machine(const uint8_t *code, double x) {
    static const void *const labels[] = {&&stop, &&push, &&add, &&mul, &&dup, &&swap, &&dec, &&branch};
    double stack[32], *top = stack;
    *top = x;
    const uint8_t *pc = code;
    goto *labels[*pc++];
push:
    *++top = *pc++;
    goto *labels[*pc++];
add:
    top--, top[0] += top[1];
    goto *labels[*pc++];
mul:
    top--, top[0] *= top[1];
    goto *labels[*pc++];
dup:
    top++, top[0] = top[-1];
    goto *labels[*pc++];
swap : {
    double other = top[0];
    top[0] = top[-1], top[-1] = other;
    goto *labels[*pc++];
}
dec:
    top[0] -= 1;
    goto *labels[*pc++];
branch:
    pc = top[0] > 0 ? code + *pc : pc + 1;
    goto *labels[*pc++];
stop:
    return top[-1];
}

static double power_of_two(int count, const double *values) {
    /* product counter: swap, double, swap, count down */
    static const uint8_t code[] = {1, 1, 5, 5, 1, 2, 3, 5, 6, 7, 3, 0};
    (void)machine(code + 11, 1);
    uint8_t run[] = {1, 1, 5, 5, 1, 2, 3, 5, 6, 7, 3, 0};
    return machine(run, count ? values[0] : 4);
}

static const struct {
    const char *name;
    procedure call;
} procedures[] = {{"median", median}, {"sum", sum}, {"max", largest}, {"root", root}, {"even", even}, {"mix", mix}, {"towers", towers}, {"two", power_of_two}};

static procedure procedure_of(const char *text, size_t len) {
    for (size_t i = 0; i < sizeof procedures / sizeof *procedures; i++)
        if (strlen(procedures[i].name) == len && !strncmp(procedures[i].name, text, len)) return procedures[i].call;
    fail("no procedure %.*s", (int)len, text);
}

/* Expressions. */

static double choice(struct reader *reader);

static double call(struct reader *reader, procedure callee) {
    double values[40];
    int count = 0;
    if (!is(reader, RIGHT)) {
        do {
            if (count == 40) fail("more than %d values", count);
            values[count++] = choice(reader);
        } while (is(reader, COMMA));
        expect(reader, RIGHT, "`)`");
    }
    return callee(count, values);
}

static double atom(struct reader *reader) {
    struct word word = reader->word;
    if (++reader->depth > 200) fail("too deep");
    double value = 0;
    switch (word.kind) {
    case NUMBER:
        go_on(reader);
        value = word.number;
        break;
    case NAME:
        go_on(reader);
        value = is(reader, LEFT) ? call(reader, procedure_of(word.text, word.len)) : name_of(word.text, word.len)->value;
        break;
    case LEFT:
        go_on(reader);
        value = choice(reader);
        expect(reader, RIGHT, "`)`");
        break;
    case MINUS:
        go_on(reader);
        value = -atom(reader);
        break;
    default: fail("a value expected before `%.10s`", word.text);
    }
    while (is(reader, BANG)) value = factorial(value);
    reader->depth--;
    return is(reader, POWER) ? pow(value, atom(reader)) : value;
}

static double product(struct reader *reader) {
    double value = atom(reader);
    for (;;) {
        if (is(reader, TIMES)) value *= atom(reader);
        else if (is(reader, OVER)) {
            double by = atom(reader);
            if (by == 0) fail("%g by zero", value);
            value /= by;
        } else return value;
    }
}

static double addition(struct reader *reader) {
    double value = product(reader);
    for (;;) {
        if (is(reader, PLUS)) value += product(reader);
        else if (is(reader, MINUS)) value -= product(reader);
        else return value;
    }
}

static double comparison(struct reader *reader) {
    double value = addition(reader);
    if (is(reader, LESS)) return value < addition(reader);
    if (is(reader, MORE)) return value > addition(reader);
    return value;
}

static double choice(struct reader *reader) {
    double value = comparison(reader);
    if (!is(reader, QUESTION)) return value;
    double yes = choice(reader);
    expect(reader, COLON, "`:`");
    double no = choice(reader);
    return value != 0 ? yes : no;
}

static double statement(struct reader *reader) {
    go_on(reader);
    struct reader before = *reader;
    if (reader->word.kind == NAME) {
        struct word word = reader->word;
        go_on(reader);
        if (is(reader, EQUALS)) return name_of(word.text, word.len)->value = choice(reader);
        *reader = before;
    }
    double value = choice(reader);
    if (reader->word.kind != END) fail("the end expected before `%.10s`", reader->word.text);
    return value;
}

static APART void run(const char *line) {
    if (setjmp(on_error)) {
        printf("%s: %s\n", line, message);
        return;
    }
    struct reader reader = {line, {END, 0, line, 0}, 0};
    double value = statement(&reader);
    char *text = need(malloc(strlen(line) + 100));
    int len = sprintf(text, "%s = %.12g", line, value);
    puts(text);
    if (len < 3) die("short line");
    free(text);
}

static const char *const lines[] = {
    "1 + 2 * 3 ^ 2 - 4 / 2",
    "x = (1 + 2) * (3 + (4 - 1))",
    "y = x > 3 ? sum(x, 2, 3) : 0",
    "median(5, 3, 9, 1, 7, 2, x, y)",
    "median(5, 3, 9)",
    "max(x, y, 100, -3)",
    "root(2) * root(y)",
    "even(10) + even(7)",
    "mix(3)",
    "towers(5)",
    "two(6)",
    "20!",
    "((((((((((((((((((((1))))))))))))))))))))",
    "-(-(-3))",
    "1 / 0",
    "nosuch(1)",
    "median()",
    "root(-1)",
    "(1 + ",
    "1 $ 2",
    "1 2",
    "",
};

static void last_words(void) { fputs("bye\n", stdout); }

int main(int argc, char **argv) {
    atexit(last_words);
    int rounds = argc > 1 ? atoi(argv[1]) : 2;
    for (int round = 0; round < rounds; round++)
        for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) run(lines[i]);
    return 0;
}
