//! Servers with a bounded load over the loopback interface: server and load in one recording.

use super::row::{PLAIN, Row};

pub const ROWS: &[Row] = &[
    Row {
        name: "redis",
        does: "redis-server with redis-benchmark",
        packages: &["redis-server", "redis-tools"],
        files: &[("serve.sh", include_str!("../inputs/redis.sh"))],
        run: &["sh", "serve.sh"],
        ..PLAIN
    },
    Row {
        name: "nginx",
        does: "nginx, two workers, with ab",
        packages: &["nginx-light", "apache2-utils"],
        files: &[
            ("serve.sh", include_str!("../inputs/nginx.sh")),
            ("nginx.conf.in", include_str!("../inputs/nginx.conf.in")),
        ],
        run: &["sh", "serve.sh"],
        ..PLAIN
    },
    Row {
        name: "memcached",
        does: "memcached, two threads, with memcslap",
        packages: &["memcached", "libmemcached-tools"],
        files: &[("serve.sh", include_str!("../inputs/memcached.sh"))],
        run: &["sh", "serve.sh"],
        ..PLAIN
    },
];
