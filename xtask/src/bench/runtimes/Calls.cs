// Recursion in compiled code, comparators below the library's sort, and calls through the runtime (reflection).
using System;
using System.Diagnostics;
using System.Reflection;
using System.Runtime.CompilerServices;

public static class Calls {
    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Leaf(long value) {
        for (int round = 0; round < 12; round++) value = unchecked(value * 6364136223846793005L + round);
        return value >> 40;
    }

    static long Tree(int depth, long value) {
        return depth == 0 ? Leaf(value) : Tree(depth - 1, value + 1) + Tree(depth - 1, value ^ depth);
    }

    static int Weigh(int one, int other) {
        return Leaf(one).CompareTo(Leaf(other));
    }

    static long Sorted(int count) {
        var numbers = new int[count];
        for (int index = 0; index < count; index++) numbers[index] = index * 7919 % count;
        Array.Sort(numbers, Weigh);
        return numbers[0];
    }

    public static long Reflected(int depth) {
        return Tree(depth, depth) + Sorted(2000);
    }

    public static void Main(string[] arguments) {
        var clock = Stopwatch.StartNew();
        long until = long.Parse(arguments[0]);
        MethodInfo method = typeof(Calls).GetMethod("Reflected");
        long sum = 0;
        while (clock.ElapsedMilliseconds < until) sum = unchecked(sum + (long) method.Invoke(null, new object[] { 14 }));
        Console.WriteLine(sum != 0);
    }
}
