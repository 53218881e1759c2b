/* Prints what a program can see of how it was started: arguments, environment, directory, limits, descriptors, signals,
 * ids. Two runs must print the same, but for what callpath says that it adds. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

extern char **environ;

int main(int argc, char **argv)
{
    for (int i = 0; i < argc; i++)
        printf("argument %s\n", argv[i]);
    for (char **e = environ; *e; e++)
        printf("environment %s\n", *e);
    char text[4096];
    printf("directory %s\n", getcwd(text, sizeof text));
    mode_t mask = umask(0);
    printf("umask %o, nice %d, scheduler %d\n", mask, nice(0), sched_getscheduler(0));
    printf("ids %d %d %d %d\n", getuid(), geteuid(), getgid(), getegid());
    printf("dumpable %d, no new privileges %d, parent's death %s\n", prctl(PR_GET_DUMPABLE), prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0),
           (prctl(PR_GET_PDEATHSIG, &mask), mask ? "kills" : "is ignored"));
    printf("subreaper %s\n", (prctl(PR_GET_CHILD_SUBREAPER, &mask), mask ? "yes" : "no"));
    for (int i = 0; i < 16; i++) {
        struct rlimit limit;
        if (!getrlimit(i, &limit))
            printf("limit %d %llx %llx\n", i, (unsigned long long)limit.rlim_cur, (unsigned long long)limit.rlim_max);
    }
    /* The directory's own descriptor is the lowest free one: the same number in both runs if the others are the same. */
    DIR *directory = opendir("/proc/self/fd");
    for (struct dirent *entry; (entry = readdir(directory));)
        printf("descriptor %s flags %x\n", entry->d_name, fcntl(atoi(entry->d_name), F_GETFD));
    closedir(directory);
    FILE *status = fopen("/proc/self/status", "r");
    while (fgets(text, sizeof text, status))
        /* SigQ is of all processes of the user. */
        if ((!strncmp(text, "Sig", 3) && strncmp(text, "SigQ", 4)) || !strncmp(text, "ShdPnd", 6) || !strncmp(text, "Name", 4) ||
            !strncmp(text, "Threads", 7) || !strncmp(text, "Seccomp:", 8))
            printf("status %s", text);
    fclose(status);
    printf("session %s, group %s\n", getsid(0) == getpid() ? "own" : "inherited", getpgrp() == getpid() ? "own" : "inherited");
    return 0;
}
