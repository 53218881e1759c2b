/* One program under three names: `words | rank | summary` in a shell. `rank` is slow. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned rank_word(const char *word)
{
    unsigned rank = 0;
    for (int round = 0; round < 2000; round++)
        for (const char *c = word; *c; c++)
            rank = rank * 31 + (unsigned char)*c;
    return rank;
}

static void words(long count)
{
    unsigned state = 7;
    for (long i = 0; i < count; i++) {
        state = state * 1103515245 + 12345;
        printf("word%u\n", state >> 16 & 4095);
    }
}

static void rank(void)
{
    char line[64];
    while (fgets(line, sizeof line, stdin))
        printf("%u %s", rank_word(line), line);
}

static void summary(void)
{
    char line[96];
    unsigned long sum = 0;
    while (fgets(line, sizeof line, stdin))
        sum += strtoul(line, NULL, 10) % 1000;
    printf("%lu\n", sum);
}

int main(int count, char **arguments)
{
    const char *name = strrchr(arguments[0], '/');
    name = name ? name + 1 : arguments[0];
    if (!strcmp(name, "words"))
        words(count > 1 ? atol(arguments[1]) : 40000);
    else if (!strcmp(name, "rank"))
        rank();
    else
        summary();
    return 0;
}
