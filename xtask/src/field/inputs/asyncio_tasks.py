# Tasks of asyncio in a row, each of which sends on what it gets.
import asyncio
import sys


def weigh(number):
    for i in range(30):
        number = (number * 31 + i) % 1000003
    return number


async def stage(source, to):
    while (number := await source.get()) is not None:
        await to.put(weigh(number))
    await to.put(None)


async def send(count, to):
    for number in range(count):
        await to.put(number)
    await to.put(None)


async def main():
    queues = [asyncio.Queue(16) for _ in range(9)]
    tasks = [asyncio.create_task(stage(queues[i], queues[i + 1])) for i in range(8)]
    tasks.append(asyncio.create_task(send(int(sys.argv[1]), queues[0])))
    total = 0
    while (number := await queues[8].get()) is not None:
        total += number
    await asyncio.gather(*tasks)
    print(total)


asyncio.run(main())
