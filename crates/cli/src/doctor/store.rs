//! Checks the store.

use semel::core::diagnosis::{Finding, Severity};
use semel::core::store::Capabilities;
use semel_server::config::Config;
use semel_server::{OpenOptions, StartError};

use super::Report;

/// Opens the store and runs its own diagnosis. A store that cannot be opened is a finding, too.
pub(super) async fn check(config: &Config, report: &mut Report) {
    if config.store.url.is_none() && config.store.url_file.is_none() {
        let found = "no store is given";
        let fix = "--store redis://HOST:PORT, postgres://USER@HOST/DATABASE, \
                   mysql://USER@HOST/DATABASE, sqlite:///PATH, or --config FILE";
        report.add(
            "store",
            [Finding::bad("open", Severity::Broken, found, fix)],
        );
        return;
    }
    let semel = match OpenOptions::for_tool(config).open_store().await {
        Ok(semel) => semel,
        Err(error) => {
            report.add("store", [unusable(&error)]);
            return;
        }
    };
    let capabilities = semel.store().capabilities();
    report.add("store", [judge_durability(capabilities)]);
    match semel.store().diagnose().await {
        Ok(findings) => report.add("store", findings),
        Err(error) => {
            let found = format!("the store could not be checked: {error}");
            let fix = "see its log; may this user read the settings of the server?";
            report.add(
                "store",
                [Finding::bad("diagnosis", Severity::Broken, found, fix)],
            );
        }
    }
}

fn unusable(error: &StartError) -> Finding {
    match error {
        StartError::Store { url, fix, source } => {
            let found = format!("{url}: {source}");
            Finding::bad("open", Severity::Broken, found, *fix)
        }
        other => {
            let text = other.to_string();
            let (found, fix) = text
                .split_once("\n    fix: ")
                .unwrap_or((&text, "see `semel config explain store`"));
            Finding::bad("open", Severity::Broken, found, fix)
        }
    }
}

fn judge_durability(store: Capabilities) -> Finding {
    match (store.durable, store.shared) {
        (true, true) if store.name == "sqlite" => Finding::good(
            "open",
            "all processes on this host share the records, which survive a restart",
        ),
        (true, true) => Finding::good(
            "open",
            "all nodes share the records, which survive the loss of a node",
        ),
        (false, true) => Finding::good("open", "all nodes share the records"),
        _ => Finding::bad(
            "open",
            Severity::Note,
            "only one process sees the records, and they are lost when it ends",
            "fine for a trial; use a shared store otherwise: redis://…, postgres://…, mysql://…, \
             sqlite://…",
        ),
    }
}
