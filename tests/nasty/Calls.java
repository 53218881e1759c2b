/** Known calls: main -> top -> middle -> leaf, and main -> beside -> other. */
public class Calls {
    static int sink;

    static int leaf(int n) {
        int sum = 0;
        for (int i = 0; i < n; i++)
            sum += i ^ (sum >> 3);
        return sum;
    }

    static int middle(int n) {
        int sum = 0;
        for (int i = 0; i < 100; i++)
            sum += leaf(n);
        return sum + 1;
    }

    static int top(int n) {
        int sum = 0;
        for (int i = 0; i < 10; i++)
            sum += middle(n + i);
        return sum + 2;
    }

    static int other(int n) {
        int sum = 1;
        for (int i = 0; i < n; i++)
            sum = sum * 31 + i;
        return sum;
    }

    static int beside(int n) {
        int sum = 0;
        for (int i = 0; i < 1000; i++)
            sum += other(n);
        return sum + 1;
    }

    public static void main(String[] words) {
        int rounds = Integer.parseInt(words[0]);
        for (int i = 0; i < rounds; i++) {
            sink += top(10000);
            sink += beside(10000);
        }
        System.out.println(sink);
        System.exit(5);
    }
}
