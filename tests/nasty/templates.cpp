// Containers, sorting, virtual calls, lambdas and a recursive template: code that each level of optimization inlines otherwise.
// Argument: how much work, 10 is about half a second.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

struct Record {
    int id;
    std::string name;
    double weight;
};

struct Shape {
    virtual ~Shape() {}
    virtual double area() const = 0;
};

struct Square : Shape {
    double side;
    explicit Square(double side) : side(side) {}
    double area() const override { return side * side; }
};

struct Ring : Shape {
    double outer, inner;
    Ring(double outer, double inner) : outer(outer), inner(inner) {}
    double area() const override {
        double sum = 0;
        for (int i = 0; i < 20; i++) sum += (outer * outer - inner * inner) * 3.14159 / (1 + i);
        return sum;
    }
};

template <typename Key, typename Value> class Tree {
    struct Node {
        Key key;
        Value value;
        std::unique_ptr<Node> left, right;
    };
    std::unique_ptr<Node> root;
    Value &put(std::unique_ptr<Node> &node, const Key &key) {
        if (!node) node.reset(new Node{key, Value(), nullptr, nullptr});
        if (key < node->key) return put(node->left, key);
        if (node->key < key) return put(node->right, key);
        return node->value;
    }

public:
    Value &operator[](const Key &key) { return put(root, key); }
};

static unsigned seed = 1;

static unsigned next_random() {
    seed = seed * 1664525 + 1013904223;
    return seed >> 8;
}

static std::vector<Record> make(int count) {
    std::vector<Record> records;
    for (int i = 0; i < count; i++) {
        unsigned random = next_random();
        records.push_back({int(random % 100000), "name" + std::to_string(random % 5000), random / 3.0});
    }
    return records;
}

static long index_by_name(const std::vector<Record> &records) {
    std::map<std::string, std::vector<int>> index;
    for (auto &record : records) index[record.name].push_back(record.id);
    long sum = 0;
    for (auto &entry : index) sum += entry.second.size() * entry.first.size();
    return sum;
}

static long count_words(const std::vector<Record> &records) {
    std::unordered_map<std::string, int> counts;
    for (auto &record : records) counts[record.name + "!"]++;
    long sum = 0;
    for (auto &entry : counts) sum += entry.second;
    return sum;
}

static double sort_records(std::vector<Record> records) {
    std::sort(records.begin(), records.end(), [](const Record &a, const Record &b) { return a.weight < b.weight; });
    std::stable_sort(records.begin(), records.end(), [](const Record &a, const Record &b) { return a.name < b.name; });
    return records[records.size() / 2].weight;
}

static double shapes(int count) {
    std::vector<std::unique_ptr<Shape>> all;
    for (int i = 0; i < count; i++) {
        if (next_random() % 2) {
            all.emplace_back(new Square(i));
        } else {
            all.emplace_back(new Ring(i, i / 2.0));
        }
    }
    double sum = 0;
    for (int round = 0; round < 5; round++) {
        for (auto &shape : all) sum += shape->area();
    }
    return sum;
}

static long sum_of(const std::vector<int> &values, const std::function<long(int)> &each) {
    long sum = 0;
    for (int value : values) sum += each(value);
    return sum;
}

static long closures(int count) {
    std::vector<int> values(count);
    std::iota(values.begin(), values.end(), 0);
    long factor = 7;
    auto mixed = [factor](int value) {
        long sum = 0;
        for (int i = 0; i < 16; i++) sum += (value * factor) ^ i;
        return sum;
    };
    return sum_of(values, mixed) + sum_of(values, [&values](int value) { return long(values[values.size() - 1 - value]) % 3; });
}

static long heap(int count) {
    std::vector<unsigned> values;
    for (int i = 0; i < count; i++) {
        values.push_back(next_random());
        std::push_heap(values.begin(), values.end());
    }
    long mixed = 0;
    while (!values.empty()) {
        std::pop_heap(values.begin(), values.end());
        mixed ^= values.back();
        values.pop_back();
    }
    return mixed;
}

static long tree(int count) {
    Tree<unsigned, long> sums;
    for (int i = 0; i < count; i++) sums[next_random() % 20000] += i;
    return sums[5];
}

static long sets(int count) {
    std::set<int> a, b;
    for (int i = 0; i < count; i++) {
        a.insert(next_random() % count);
        b.insert(next_random() % count);
    }
    std::vector<int> common;
    std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(common));
    return common.size();
}

int main(int argc, char **argv) {
    int amount = argc > 1 ? std::atoi(argv[1]) : 10;
    double sum = 0;
    for (int round = 0; round < amount; round++) {
        std::vector<Record> records = make(30000);
        sum += index_by_name(records) + count_words(records) + sort_records(records) + shapes(30000);
        sum += closures(200000) + heap(100000) + tree(60000) + sets(20000);
    }
    std::printf("%g\n", sum);
    return 0;
}
