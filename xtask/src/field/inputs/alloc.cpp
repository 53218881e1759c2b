// Two threads that allocate, free each other's memory, and fill maps and strings: what allocators and sanitizers look at.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

static std::mutex lock;
static std::vector<std::unique_ptr<std::string>> handed;

static unsigned long work(unsigned long seed, int rounds)
{
    std::map<std::string, std::vector<int>> map;
    unsigned long sum = 0;
    for (int i = 0; i < rounds; i++) {
        seed = seed * 16807 % 2147483647;
        auto word = std::make_unique<std::string>(8 + seed % 60, char('a' + seed % 26));
        map[word->substr(0, 6) + std::to_string(seed % 900)].push_back(i);
        sum += word->size();
        std::lock_guard<std::mutex> guard(lock);
        handed.push_back(std::move(word));
        if (handed.size() > 1000)
            handed.erase(handed.begin(), handed.begin() + 500);
    }
    for (auto &[word, places] : map)
        sum = sum * 31 + word.size() + places.size();
    return sum;
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 1000;
    unsigned long sums[2];
    std::thread first([&] { sums[0] = work(42, rounds); }), second([&] { sums[1] = work(43, rounds); });
    first.join();
    second.join();
    printf("%lu %lu\n", sums[0], sums[1]);
}
