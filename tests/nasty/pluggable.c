/* A library that comes and goes (plugs_in.c). Its functions say how often they were called through the caller's memory. */
static long local;

void plugged(unsigned long *calls)
{
    ++*calls;
    local++;
}

void briefly(unsigned long *calls)
{
    ++*calls;
    local--;
}

void plugged_deep(unsigned long *calls, int depth)
{
    if (depth)
        plugged_deep(calls, depth - 1);
    else
        plugged(calls);
}
