/* Executes its arguments with an odd environment: its own, a name twice, entries without a name, without a value, empty. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    static char *odd[] = {"TWICE=one", "TWICE=two", "=nameless", "valueless", "", "EMPTY=", 0};
    int count = 0;
    while (environ[count])
        count++;
    char **all = calloc(count + sizeof odd / sizeof *odd, sizeof *all);
    memcpy(all, environ, count * sizeof *all);
    memcpy(all + count, odd, sizeof odd);
    execve(argv[1], argv + 1, all);
    perror("execve");
    return 1;
}
