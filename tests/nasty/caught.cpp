// Logs its context, by the number that callpath gives it, where exceptions have left functions: lines `PID NUMBER PATH` in
// `logged`, as numbers.c has them.
#include <cstdio>
#include <cstring>
#include <unistd.h>

#define APART __attribute__((noinline, noclone))

extern "C" __attribute__((weak)) unsigned long callpath_context(void)
{
    return 0;
}

static FILE *logged;

// What is not left on the stack is room in which a function seems to be active that was left.
APART static void logs(const char *path)
{
    char room[8192];
    memset(room, 0, sizeof room);
    asm volatile("" : : "r"(room) : "memory");
    fprintf(logged, "%d %lu %s\n", (int)getpid(), callpath_context(), path);
}

extern "C" APART void known_throws(int n)
{
    if (n > 0)
        known_throws(n - 1);
    else
        throw 7;
    asm volatile("");
}

extern "C" APART int catches(const char *path)
{
    int caught = 0;
    try {
        known_throws(2);
    } catch (int number) {
        logs(path);
        caught = number;
    }
    logs(path);
    return caught;
}

extern "C" APART void known_catches()
{
    catches("main;known_catches");
    logs("main;known_catches");
    asm volatile("");
}

int main()
{
    logged = fopen("logged", "w");
    int caught = catches("-");
    known_catches();
    logs("-");
    fclose(logged);
    printf("caught %d\n", caught);
}
