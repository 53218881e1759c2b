//! The SQL that callpath ships: a query each over tables or views that are named as [`crate::TABLES`]. DuckDB and Spark run it as it is.

/// A query.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shipped {
    /// Its name; its file is this with `.sql`.
    pub name: &'static str,
    /// What it answers.
    pub about: &'static str,
    /// One SELECT, without a semicolon.
    pub sql: &'static str,
}

/// All of them. One may name those before it as tables.
pub const SHIPPED: [Shipped; 7] = [
    Shipped {
        name: "nodes",
        about: "contexts with their names, each once",
        sql: include_str!("../../../sql/nodes.sql"),
    },
    Shipped { name: "metrics", about: "metrics, each once", sql: include_str!("../../../sql/metrics.sql") },
    Shipped {
        name: "members",
        about: "what the last one compares: profiles",
        sql: include_str!("../../../sql/members.sql"),
    },
    Shipped {
        name: "merge",
        about: "what each context costs itself, over all exports",
        sql: include_str!("../../../sql/merge.sql"),
    },
    Shipped {
        name: "parts",
        about: "what each context's range of places consists of, for the next two",
        sql: include_str!("../../../sql/parts.sql"),
    },
    Shipped {
        name: "inclusive",
        about: "what each context costs with all below it, over all exports",
        sql: include_str!("../../../sql/inclusive.sql"),
    },
    Shipped {
        name: "imbalance",
        about: "how that is distributed over the profiles: mean, least, greatest, and whose that is",
        sql: include_str!("../../../sql/imbalance.sql"),
    },
];
