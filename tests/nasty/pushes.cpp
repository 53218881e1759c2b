// Exceptions that leave calls whose arguments are on the stack: a landing pad is entered with rsp above what was pushed. Caught, and passed by
// destructors; with 16, 32 and 48 bytes of arguments, and with loops and branches before and behind, so that paths have several numbers.
#include <cstdio>

#define PLAIN extern "C" __attribute__((noinline, noclone))

static long total;
PLAIN void note(long value) noexcept { total += value; }

PLAIN long eight(long a, long b, long c, long d, long e, long f, long g, long h)
{
    if ((a + h) % 3 == 0) throw h;
    return a + b + c + d + e + f + g + h;
}
PLAIN long ten(long a, long b, long c, long d, long e, long f, long g, long h, long i, long j)
{
    if ((a + j) % 3 == 0) throw j;
    return a + b + c + d + e + f + g + h + i + j;
}
PLAIN long twelve(long a, long b, long c, long d, long e, long f, long g, long h, long i, long j, long k, long l)
{
    if ((a + l) % 3 == 0) throw l;
    return a + b + c + d + e + f + g + h + i + j + k + l;
}

struct Notes {
    long value;
    ~Notes() { note(value); }
};

PLAIN long catches_eight(long n)
{
    long sum = n & 1 ? 3 : 5;
    try {
        sum += eight(1, 2, 3, 4, 5, 6, 7, n);
    } catch (long thrown) {
        note(thrown);
        sum += thrown & 2 ? 7 : 11;
    }
    return sum;
}
PLAIN long catches_ten(long n)
{
    long sum = n & 1 ? 3 : 5;
    try {
        sum += ten(1, 2, 3, 4, 5, 6, 7, 8, 9, n);
    } catch (long thrown) {
        note(thrown);
        sum += thrown & 2 ? 7 : 11;
    }
    return sum;
}
PLAIN long cleans(long n)
{
    Notes notes{n};
    if (n & 4) note(1);
    long sum = twelve(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, n);
    return sum + ten(2, 2, 3, 4, 5, 6, 7, 8, 9, n);
}

int main()
{
    long sum = 0, caught = 0;
    for (long n = 0; n < 600; n++) {
        sum += catches_eight(n) + catches_ten(n);
        try {
            sum += cleans(n);
        } catch (long thrown) {
            caught++;
            sum -= thrown;
        }
    }
    printf("%ld %ld %ld\n", sum, caught, total);
}
