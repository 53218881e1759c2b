struct Node {
    const Node *left;
    const Node *right;
    long key;
};

template <class Less>
struct Tree {
    const Node *root;
    Less less;

    INLINED const Node *find(long key) const {
        const Node *node = root;
        while (node) { //@ loop descend: get_adjacencies > entities > find() > find()
            if (less(key, node->key)) //@ inlined operator: get_adjacencies > entities > find() > find() > descend
                node = node->left;
            else if (less(node->key, key)) //@ inlined operator: get_adjacencies > entities > find() > find() > descend
                node = node->right;
            else
                break;
        }
        return node;
    }
};
