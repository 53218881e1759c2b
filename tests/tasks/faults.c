/* Reads, indexes, searches. The pages that are touched first are those of the index: build_index causes the page faults. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define PAGE 4096

static uint64_t *read_records(size_t count)
{
    uint64_t *records = malloc(count * sizeof *records);
    for (size_t i = 0; i < count; i++)
        records[i] = i * 2654435761u;
    return records;
}

static unsigned char *build_index(const uint64_t *records, size_t count, size_t pages)
{
    unsigned char *index = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (index == MAP_FAILED)
        abort();
    for (size_t i = 0; i < pages; i++)
        index[i * PAGE] = (unsigned char)records[i % count];
    return index;
}

static long search(const unsigned char *index, size_t pages)
{
    long found = 0;
    for (int round = 0; round < 40; round++)
        for (size_t i = 0; i < pages; i++)
            found += index[i * PAGE] == round;
    return found;
}

int main(int count, char **arguments)
{
    size_t pages = count > 1 ? (size_t)atol(arguments[1]) : 20000;
    uint64_t *records = read_records(50000);
    unsigned char *index = build_index(records, 50000, pages);
    printf("%ld\n", search(index, pages));
    return 0;
}
