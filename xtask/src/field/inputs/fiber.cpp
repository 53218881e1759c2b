// Fibers in a row, each of which sends on what it gets.
#include <boost/fiber/all.hpp>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

using Channel = boost::fibers::buffered_channel<long>;

__attribute__((noinline)) static long weigh(long number)
{
    unsigned long sum = number;
    for (int i = 0; i < 300; i++)
        sum = (sum << 5 | sum >> 59) ^ (sum * 31 + i);
    return sum;
}

static void stage(Channel &from, Channel &to)
{
    for (long number : from)
        to.push(weigh(number));
    to.close();
}

int main(int argc, char **argv)
{
    long numbers = argc > 1 ? atol(argv[1]) : 1000;
    std::vector<std::unique_ptr<Channel>> channels;
    for (int i = 0; i < 9; i++)
        channels.push_back(std::make_unique<Channel>(64));
    std::vector<boost::fibers::fiber> fibers;
    for (int i = 0; i < 8; i++)
        fibers.emplace_back(stage, std::ref(*channels[i]), std::ref(*channels[i + 1]));
    boost::fibers::fiber sender([&] {
        for (long number = 0; number < numbers; number++)
            channels[0]->push(number);
        channels[0]->close();
    });
    unsigned long sum = 0;
    for (long number : *channels[8])
        sum += number;
    sender.join();
    for (auto &fiber : fibers)
        fiber.join();
    printf("%lu\n", sum);
}
