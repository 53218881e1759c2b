using System;
using System.Collections.Generic;
using System.Linq;

/// Calls, delegates, generics, strings.
static class Work
{
    static int Fib(int n) => n < 2 ? n : Fib(n - 1) + Fib(n - 2);

    static string Words(int count)
    {
        long seed = 42;
        var counts = new Dictionary<string, int>();
        for (int i = 0; i < count; i++)
        {
            seed = seed * 16807 % 2147483647;
            string word = "w" + (seed % 5000).ToString("x");
            counts.TryGetValue(word, out int before);
            counts[word] = before + 1;
        }
        var most = counts.OrderByDescending(one => one.Value).ThenBy(one => one.Key, StringComparer.Ordinal).First();
        return most.Key + " " + most.Value;
    }

    static void Main(string[] arguments)
    {
        for (int round = 0; round < int.Parse(arguments[0]); round++)
            Console.WriteLine(Fib(31) + " " + Words(300000));
    }
}
