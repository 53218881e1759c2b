/* Overwrites memory of its profiler's, as a wild store of its own might: what callpath keeps of it is no longer true.
 *
 *   overwrites MODE
 *
 *   thread   all that its threads' chunks hold, but for the chunks' headers
 *   header   the headers of those chunks
 *   shared   what all processes share
 *
 * Without a profiler there is no such memory, and nothing is overwritten. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { CHUNK = 65536, HEADER = 64, SHARED_CHUNKS = 6 };

static volatile uint64_t sink;

__attribute__((noinline)) static void burn(long rounds)
{
    for (long i = 0; i < rounds; i++)
        sink = sink * 6364136223846793005u + 1442695040888963407u;
}

/* The profiler's writable memory, its first byte and one past the last; 0, 0 if there is none. */
static void find_arena(char **start, char **end)
{
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    *start = *end = 0;
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long from, to;
        if (strstr(line, "/memfd:callpath-arena") && sscanf(line, "%lx-%lx", &from, &to) == 2) {
            *start = (char *)from;
            *end = (char *)to;
            break;
        }
    }
    if (maps)
        fclose(maps);
}

int main(int count, char **arguments)
{
    const char *mode = count > 1 ? arguments[1] : "";
    burn(60000000);
    char *start, *end;
    find_arena(&start, &end);
    for (char *at = start; at < end; at += CHUNK) {
        /* What all processes share comes first; of the rest, only what has an owner is looked at. */
        int is_shared = at < start + SHARED_CHUNKS * CHUNK;
        uint32_t kind;
        memcpy(&kind, at, sizeof kind);
        if (is_shared ? strcmp(mode, "shared") : kind == 0)
            continue;
        if (!strcmp(mode, "thread"))
            memset(at + HEADER, 0x41, CHUNK - HEADER);
        else if (!strcmp(mode, "header"))
            memset(at, 0x41, HEADER);
        else if (!strcmp(mode, "shared") && is_shared)
            memset(at, 0x41, CHUNK);
    }
    burn(30000000);
    printf("%s: done\n", mode);
    return 0;
}
