/* A static program that runs another one in its own process as an emulator does: emulates PROGRAM [ARGUMENT]...
 * The program's loader is mapped here and begins on a stack of our own. What it wants done with SIGTRAP is ours to know, and
 * never reaches the kernel: a SIGTRAP that the program has not caused kills. */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

static const char LOADER[] = "/lib64/ld-linux-x86-64.so.2";
extern char **environ;

static void die(const char *what)
{
    perror(what);
    exit(99);
}

/* The program's system call is done: nothing has happened. */
static void pretend(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)info;
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RAX] = 0;
}

static void keep_sigtrap_from_it(void)
{
    struct sigaction action = {.sa_sigaction = pretend, .sa_flags = SA_SIGINFO};
    if (sigaction(SIGSYS, &action, NULL))
        die("sigaction");
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigaction, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SIGTRAP, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof code / sizeof code[0], code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
        die("seccomp");
}

int main(int argc, char **argv)
{
    (void)argc;
    int file = open(LOADER, O_RDONLY);
    Elf64_Ehdr header;
    if (file < 0 || read(file, &header, sizeof header) != sizeof header)
        die(LOADER);
    Elf64_Phdr parts[header.e_phnum];
    if (pread(file, parts, sizeof parts, header.e_phoff) != (ssize_t)sizeof parts)
        die(LOADER);
    char *base = mmap(NULL, 1 << 24, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < header.e_phnum; i++) {
        Elf64_Phdr *part = &parts[i];
        if (part->p_type != PT_LOAD)
            continue;
        uintptr_t skew = part->p_vaddr % 4096;
        int protection = ((part->p_flags & PF_R) ? PROT_READ : 0) | ((part->p_flags & PF_W) ? PROT_WRITE : 0) |
                         ((part->p_flags & PF_X) ? PROT_EXEC : 0);
        char *start = base + part->p_vaddr - skew;
        if (part->p_memsz > part->p_filesz) {
            /* All of it a copy, with zeros behind the file's bytes. */
            size_t length = (part->p_memsz + skew + 4095) & ~4095ul;
            mmap(start, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
            if (pread(file, start + skew, part->p_filesz, part->p_offset) != (ssize_t)part->p_filesz)
                die(LOADER);
        } else if (mmap(start, part->p_filesz + skew, protection, MAP_PRIVATE | MAP_FIXED, file,
                        part->p_offset - skew) == MAP_FAILED) {
            die("mmap");
        }
    }
    close(file);

    enum { STACK_BYTES = 8 << 20 };
    char *stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *strings = stack + STACK_BYTES - 65536;
    size_t used = 0;
    uint64_t words[4096];
    int count = 0;
    argv[0] = (char *)LOADER;
    words[count++] = argc;
    for (char ***list = (char **[]){argv, environ, NULL}; *list; list++) {
        for (char **string = *list; *string; string++) {
            words[count++] = (uint64_t)strcpy(strings + used, *string);
            used += strlen(*string) + 1;
        }
        words[count++] = 0;
    }
    memcpy(strings + used, (void *)getauxval(AT_RANDOM), 16);
    uint64_t auxiliary[] = {AT_PHDR,   (uint64_t)(base + header.e_phoff),
                            AT_PHENT,  sizeof(Elf64_Phdr),
                            AT_PHNUM,  header.e_phnum,
                            AT_ENTRY,  (uint64_t)(base + header.e_entry),
                            AT_PAGESZ, 4096,
                            AT_BASE,   0,
                            AT_HWCAP,  getauxval(AT_HWCAP),
                            AT_RANDOM, (uint64_t)(strings + used),
                            AT_EXECFN, (uint64_t)strings,
                            AT_NULL,   0};
    memcpy(&words[count], auxiliary, sizeof auxiliary);
    count += sizeof auxiliary / sizeof auxiliary[0];
    uint64_t *begin = (uint64_t *)((uintptr_t)(strings - sizeof(uint64_t) * count) & ~63ul);
    memcpy(begin, words, sizeof(uint64_t) * count);
    keep_sigtrap_from_it();
    __asm__ volatile("mov %0, %%rsp\n\txor %%edx, %%edx\n\tjmp *%1" : : "r"(begin), "r"(base + header.e_entry) : "memory");
    __builtin_unreachable();
}
