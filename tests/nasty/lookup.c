/* A look-up that is fast by its key, and that one caller asks otherwise, so that it searches (Bernat and Miller 2006,
 * section 5.2). The program knows the calls of each path, and prints how many entries were looked at, by caller. */
#include "truth.h"

#define FUNCTIONS 4096
#define BUCKETS 1024

struct function {
    unsigned long start, end;
    struct function *next;
};

static struct function functions[FUNCTIONS];
static struct function *buckets[BUCKETS];
static unsigned long steps, sink;

/* By its first address out of the table, by another by a search through all of it. */
__attribute__((noinline)) struct function *find_function(unsigned long address)
{
    ENTERED;
    struct function *found = buckets[address / 64 % BUCKETS];
    for (; found && found->start != address; found = found->next)
        steps++;
    for (unsigned bucket = 0; !found && bucket < BUCKETS; bucket++)
        for (struct function *at = buckets[bucket]; at && !found; at = at->next, steps++)
            if (at->start <= address && address < at->end)
                found = at;
    LEFT;
    return found;
}

static unsigned long first_of(unsigned number)
{
    return functions[number % FUNCTIONS].start;
}

#define BY_ENTRY(name)                                        \
    __attribute__((noinline)) void name(unsigned number)      \
    {                                                         \
        ENTERED;                                              \
        sink += find_function(first_of(number))->end;         \
        LEFT;                                                 \
    }
BY_ENTRY(insert_at_entry)
BY_ENTRY(remove_probe)
BY_ENTRY(resolve_call)

/* The caller that has only an address in the middle. */
__attribute__((noinline)) void name_of_return_address(unsigned number)
{
    ENTERED;
    sink += find_function(first_of(number) + 17)->end;
    LEFT;
}

__attribute__((noinline)) void walk_stack(unsigned number)
{
    ENTERED;
    for (unsigned frame = 0; frame < 4; frame++)
        name_of_return_address(number * 7 + frame * 1021);
    LEFT;
}

__attribute__((noinline)) void instrument(unsigned number)
{
    ENTERED;
    for (unsigned i = 0; i < 100; i++) {
        insert_at_entry(number + i);
        resolve_call(number * 3 + i);
        remove_probe(number + i);
    }
    LEFT;
}

int main(void)
{
    ENTERED;
    for (unsigned i = 0; i < FUNCTIONS; i++) {
        functions[i] = (struct function){64ul * 3 * i, 64ul * 3 * i + 64, NULL};
        struct function **bucket = &buckets[functions[i].start / 64 % BUCKETS];
        functions[i].next = *bucket;
        *bucket = &functions[i];
    }
    unsigned long fast = 0, slow = 0;
    for (unsigned i = 0; i < 300; i++) {
        unsigned long before = steps;
        instrument(i);
        fast += steps - before;
        before = steps;
        walk_stack(i);
        slow += steps - before;
    }
    printf("fast %lu slow %lu\n", fast, slow);
    LEFT;
    truth_write();
    return 0;
}
