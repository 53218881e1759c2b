/* The floor: a recorder of pc and sp alone, through the kernel's ring, without a signal.
 * floor RATE COUNT_FILE OUTPUT PROGRAM ARGS...
 * The count: samples, and the program's CPU time in microseconds. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/perf_event.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGES = 128, SP = 7 };

static void fail(const char *what)
{
    perror(what);
    exit(125);
}

int main(int argc, char **argv)
{
    if (argc < 5)
        return 125;
    int gate[2];
    if (pipe(gate))
        fail("pipe");
    pid_t child = fork();
    if (child == 0) {
        char byte;
        close(gate[1]);
        if (read(gate[0], &byte, 1) < 0)
            _exit(125);
        execvp(argv[4], argv + 4);
        _exit(127);
    }
    long page = sysconf(_SC_PAGESIZE);
    struct perf_event_attr attr = {
        .type = PERF_TYPE_SOFTWARE,
        .size = sizeof attr,
        .config = PERF_COUNT_SW_CPU_CLOCK,
        .sample_period = 1000000000ull / strtoull(argv[1], 0, 10),
        .sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_REGS_USER,
        .sample_regs_user = 1 << SP,
        .disabled = 1,
        .enable_on_exec = 1,
        .watermark = 1,
        .wakeup_watermark = PAGES * page / 2,
    };
    int event = syscall(SYS_perf_event_open, &attr, child, -1, -1, PERF_FLAG_FD_CLOEXEC);
    if (event < 0) {
        attr.exclude_kernel = 1;
        event = syscall(SYS_perf_event_open, &attr, child, -1, -1, PERF_FLAG_FD_CLOEXEC);
    }
    if (event < 0)
        fail("perf_event_open");
    struct perf_event_mmap_page *ring = mmap(0, (PAGES + 1) * page, PROT_READ | PROT_WRITE, MAP_SHARED, event, 0);
    if (ring == MAP_FAILED)
        fail("mmap");
    int out = open(argv[3], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (out < 0)
        fail(argv[3]);
    close(gate[0]);
    close(gate[1]);

    const char *data = (const char *)ring + page;
    uint64_t size = PAGES * page, samples = 0, tail = 0;
    int status, ended = 0;
    while (!ended) {
        struct pollfd wait_for = {.fd = event, .events = POLLIN};
        poll(&wait_for, 1, 100);
        ended = waitpid(child, &status, WNOHANG) == child;
        uint64_t head = __atomic_load_n(&ring->data_head, __ATOMIC_ACQUIRE);
        uint64_t from = tail;
        while (tail < head) {
            /* Records are multiples of 8 bytes, so a header never wraps. */
            struct perf_event_header header;
            memcpy(&header, data + tail % size, sizeof header);
            samples += header.type == PERF_RECORD_SAMPLE;
            tail += header.size;
        }
        while (from < head) {
            uint64_t at = from % size, len = head - from < size - at ? head - from : size - at;
            ssize_t written = write(out, data + at, len);
            if (written < 0)
                fail("write");
            from += written;
        }
        __atomic_store_n(&ring->data_tail, tail, __ATOMIC_RELEASE);
    }
    FILE *count = fopen(argv[2], "w");
    if (!count)
        fail(argv[2]);
    struct rusage usage;
    getrusage(RUSAGE_CHILDREN, &usage);
    uint64_t cpu_us = (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000ull + usage.ru_utime.tv_usec + usage.ru_stime.tv_usec;
    fprintf(count, "%llu %llu\n", (unsigned long long)samples, (unsigned long long)cpu_us);
    fclose(count);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
