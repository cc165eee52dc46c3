//! Prints `docs/stores/errors.md`: what each server may answer, and what the store makes of it.

use semel_core::Certainty;
use semel_stores::{ServerError, mysql, object, postgres, redis, sqlite};

const HEAD: &str = "# What servers answer in place of a result

Each store looks errors up in a table, and this page is made from these tables (`cargo xtask generate`). The first row of a store that fits counts. A `*` stands for whatever follows.

- **kind** is the word in logs, metrics and problem documents. `unavailable` passes by itself; `full` needs room; `rejected` needs another configuration; `record` and `body` are about one key.
- **changed?** says whether the call may have changed something although it failed.
- **claim** and **settlement** say whether such a call is sent again. A claim that fails starts nothing, so it may be refused. A settlement is sent again for a whole lease on every error but a damaged record: the effect has happened, and without a record it would happen again.

A test injects every row into a settlement on the real server, and expects that an effect that ran is settled in the end.
";

/// A store, where its codes come from, and its table.
type Table = (&'static str, &'static str, &'static [ServerError]);

const TABLES: [Table; 5] = [
    (
        "Redis and Valkey",
        "the first words of the error",
        redis::ERRORS,
    ),
    ("PostgreSQL", "SQLSTATE", postgres::ERRORS),
    ("MySQL and MariaDB", "error number", mysql::ERRORS),
    ("SQLite", "result code", sqlite::ERRORS),
    ("Object storage", "HTTP status", object::ERRORS),
];

fn main() {
    print!("{HEAD}");
    for (name, code, rows) in TABLES {
        println!(
            "\n## {name}\n\n| {code} | when | kind | changed? | claim | settlement |\n|---|---|---|---|---|---|"
        );
        for row in rows {
            println!(
                "| `{}` | {} | {} | {} | {} | {} |",
                row.code,
                row.meaning,
                row.kind.as_str(),
                if row.certainty == Certainty::Definite {
                    "no"
                } else {
                    "perhaps"
                },
                sent(row.kind.is_retried_for_claim()),
                sent(row.kind.is_retried_for_settle()),
            );
        }
    }
}

const fn sent(again: bool) -> &'static str {
    if again { "sent again" } else { "told" }
}
