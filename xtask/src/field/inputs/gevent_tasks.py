# Greenlets in a row, each of which sends on what it gets.
import sys

import gevent
from gevent.queue import Queue


def weigh(number):
    for i in range(30):
        number = (number * 31 + i) % 1000003
    return number


def stage(source, to):
    for number in iter(source.get, None):
        to.put(weigh(number))
    to.put(None)


queues = [Queue(16) for _ in range(9)]
tasks = [gevent.spawn(stage, queues[i], queues[i + 1]) for i in range(8)]


def send():
    for number in range(int(sys.argv[1])):
        queues[0].put(number)
    queues[0].put(None)


tasks.append(gevent.spawn(send))
print(sum(iter(queues[8].get, None)))
gevent.joinall(tasks)
