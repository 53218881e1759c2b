// Recursion in compiled code, comparators below the library's sort, and calls through the VM (reflection).
import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.Comparator;

public class Calls {
    static long tree(int depth, long value) {
        if (depth == 0) {
            return leaf(value);
        }
        return tree(depth - 1, value + 1) + tree(depth - 1, value ^ depth);
    }

    static long leaf(long value) {
        for (int round = 0; round < 12; round++) {
            value = value * 6364136223846793005L + round;
        }
        return value >>> 40;
    }

    static int weigh(Integer one, Integer other) {
        return Long.compare(leaf(one), leaf(other));
    }

    static long sorted(int count) {
        Integer[] numbers = new Integer[count];
        for (int index = 0; index < count; index++) {
            numbers[index] = (index * 7919) % count;
        }
        Arrays.sort(numbers, (Comparator<Integer>) Calls::weigh);
        return numbers[0];
    }

    public static long reflected(Integer depth) {
        return tree(depth, depth) + sorted(2000);
    }

    public static void main(String[] arguments) throws Exception {
        long until = System.nanoTime() + Long.parseLong(arguments[0]) * 1_000_000L;
        Method method = Calls.class.getMethod("reflected", Integer.class);
        long sum = 0;
        while (System.nanoTime() < until) {
            sum += (Long) method.invoke(null, 14);
        }
        System.out.println(sum != 0);
    }
}
