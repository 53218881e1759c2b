struct Array {
    long *values;
    long *end;
    INLINED long size() const {
        return end -
               values;
    }
    INLINED void moo(long i) const {
        out(i + 3);
        out(values[i]);
    }
    INLINED void print() const {
        out(0);
        for (const long *value = values; value != end; value++) //@ loop values: host > arrays > print(), both > print(), both > print()
            out(*value);
        out(1);
    }
};
