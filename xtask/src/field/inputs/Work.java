import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Calls, an interface with several kinds, maps, streams and a few short threads. */
public final class Work {
    interface Step {
        long apply(long number);
    }

    static int fib(int n) {
        return n < 2 ? n : fib(n - 1) + fib(n - 2);
    }

    static String words(int count) {
        long seed = 42;
        Map<String, Integer> counts = new HashMap<>();
        for (int i = 0; i < count; i++) {
            seed = seed * 16807 % 2147483647;
            counts.merge("w" + Long.toHexString(seed % 5000), 1, Integer::sum);
        }
        return counts.entrySet().stream()
                .min((a, b) -> a.getValue().equals(b.getValue()) ? a.getKey().compareTo(b.getKey()) : b.getValue() - a.getValue())
                .map(Object::toString).orElse("");
    }

    static long steps(int count) {
        List<Step> steps = new ArrayList<>();
        for (int i = 0; i < 8; i++) {
            int by = i;
            steps.add(by % 2 == 0 ? number -> number * 31 + by : number -> Long.rotateLeft(number, by) ^ by);
        }
        long sum = 1;
        for (int i = 0; i < count; i++) {
            for (Step step : steps) {
                sum = step.apply(sum);
            }
        }
        return sum;
    }

    public static void main(String[] arguments) throws InterruptedException {
        int rounds = Integer.parseInt(arguments[0]);
        for (int round = 0; round < rounds; round++) {
            long[] sums = new long[2];
            Thread[] threads = new Thread[2];
            for (int i = 0; i < threads.length; i++) {
                int at = i;
                threads[i] = new Thread(() -> sums[at] = steps(1_000_000 + at));
                threads[i].start();
            }
            for (Thread thread : threads) {
                thread.join();
            }
            System.out.println(fib(32) + " " + words(300_000) + " " + (sums[0] ^ sums[1]));
        }
    }
}
