// Threads that are cancelled wherever they are: before they begin, on their way to a wait, in it. What they leave is cleaned up each time.
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static int cleaned;
struct Cleaned {
    ~Cleaned() { cleaned += 1000; }
};

static __attribute__((noinline, noclone)) void *leaves(void *) {
    Cleaned cleans;
    pthread_cleanup_push([](void *) { cleaned += 1; }, nullptr);
    for (;;) pause();
    pthread_cleanup_pop(0);
    return nullptr;
}

int main() {
    int lost = 0;
    for (int turn = 0; turn < 5000; turn++) {
        pthread_t thread;
        cleaned = 0;
        pthread_create(&thread, nullptr, leaves, nullptr);
        for (volatile int wait = 0; wait < turn % 64 * 40; wait = wait + 1) {}
        pthread_cancel(thread);
        pthread_join(thread, nullptr);
        lost += cleaned != 1001;
    }
    printf("lost %d\n", lost);
    return 0;
}
