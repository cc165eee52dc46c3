//! The tests of our layer, run on the peer: a table of its failures.

use std::sync::Arc;
use std::{fs, io};

use anyhow::ensure;
use comfy_table::{Table, presets};

use crate::defects::DEFECTS;
use crate::peer::Peer;

/// Runs every check, prints the table, and fails if no check failed: the checks would then prove
/// nothing.
pub(crate) fn show() -> anyhow::Result<()> {
    // Panics are part of the checks.
    std::panic::set_hook(Box::new(|_| {}));
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_header(["defect", "axum-idempotent 0.6.0"]);
    let mut rows = Vec::new();
    for defect in DEFECTS {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()?;
        let found = runtime.block_on(async {
            let check = tokio::spawn((defect.check)(Arc::new(Peer)));
            check
                .await
                .unwrap_or_else(|_| Err("the check could not go on".to_owned()))
        });
        let shown = found
            .as_ref()
            .map_or_else(|what| what.clone(), |()| "holds".to_owned());
        table.add_row([defect.name, &shown]);
        rows.push(
            serde_json::json!({ "defect": defect.name, "has_it": found.is_err(), "found": shown }),
        );
    }
    println!("{table}");
    let has = rows.iter().filter(|row| row["has_it"] == true).count();
    println!("{has} of {} checks fail on the peer", rows.len());
    write(&serde_json::json!({ "peer": "axum-idempotent 0.6.0", "rows": rows }))?;
    ensure!(has > 0, "no check failed: they prove nothing");
    Ok(())
}

fn write(result: &serde_json::Value) -> io::Result<()> {
    fs::create_dir_all("target/xtask")?;
    fs::write("target/xtask/bench-peers.json", result.to_string())
}
