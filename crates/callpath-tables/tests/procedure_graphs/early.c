/* The cold part is run before there is a frame: call frame information alone says the same of it as of a procedure. */
extern int complain(int) __attribute__((cold));
extern void abort(void) __attribute__((noreturn));

int early(int v) {
    if (__builtin_expect(v < 0, 0)) {
        complain(v);
        complain(0);
        abort();
    }
    return v + 1;
}
