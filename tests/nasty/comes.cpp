// Loads libraries in all ways, and calls them: comes MODE ONE OTHER (two builds of comes_library.cpp)
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *one, *other;
static long backs;

using Run = void (*)(int, void (*)(int));

extern "C" __attribute__((noinline)) void back(int value) { __atomic_fetch_add(&backs, value + 1, __ATOMIC_RELAXED); }

// It passes the library's frames, which have something to do.
extern "C" __attribute__((noinline)) void throws(int value) {
    if (value == 5)
        throw value;
}

static void *loaded(const char *path, bool elsewhere = false) {
    void *library = elsewhere ? dlmopen(LM_ID_NEWLM, path, RTLD_NOW) : dlopen(path, RTLD_NOW);
    if (!library) {
        puts(dlerror());
        exit(1);
    }
    return library;
}

static void use(const char *path, int units) { ((Run)dlsym(loaded(path), "run"))(units, back); }

static void *thread(void *) {
    for (int round = 0; round < 10; round++) {
        void *library = loaded(one);
        ((Run)dlsym(library, "run"))(50, back);
        dlclose(library);
    }
    return nullptr;
}

// The child's child has what the child has loaded.
static void child(int number) {
    if (number == 1)
        use(other, 10);
    use(one, 100);
    if (number == 2)
        use(other, 10);
    if (fork() == 0) {
        use(one, 7);
        _exit(0);
    }
    while (wait(nullptr) > 0) {
    }
    _exit(0);
}

int main(int, char **words) {
    const char *mode = words[1];
    one = words[2];
    other = words[3];
    if (!strcmp(mode, "again"))
        for (int round = 0; round < 3; round++) {
            void *library = loaded(one);
            ((Run)dlsym(library, "run"))(1000, back);
            dlclose(library);
        }
    if (!strcmp(mode, "forks")) {
        use(other, 10);
        for (int number = 0; number < 4; number++)
            if (fork() == 0)
                child(number);
        while (wait(nullptr) > 0) {
        }
    }
    if (!strcmp(mode, "threads")) {
        // It stays, so that there is one beginning.
        use(one, 1);
        pthread_t threads[4];
        for (auto &created : threads)
            pthread_create(&created, nullptr, thread, nullptr);
        for (auto &created : threads)
            pthread_join(created, nullptr);
    }
    if (!strcmp(mode, "elsewhere")) {
        ((Run)dlsym(loaded(one, true), "run"))(100, back);
        use(one, 10);
    }
    if (!strcmp(mode, "throws")) {
        Run run = (Run)dlsym(loaded(one), "run");
        for (int round = 0; round < 100; round++)
            try {
                run(9, throws);
            } catch (int value) {
                back(value);
            }
    }
    printf("%s %ld\n", mode, backs);
    return 0;
}
