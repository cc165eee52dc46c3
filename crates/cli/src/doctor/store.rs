//! The store.

use semel::core::diagnosis::{Finding, Severity};
use semel::core::store::Capabilities;
use semel_server::config::Config;
use semel_server::{StartError, open};

use super::Report;

/// Opens the store and lets it look itself over. That it can't be opened is a finding too.
pub(super) async fn look(config: &Config, report: &mut Report) {
    if config.store.url.is_none() && config.store.url_file.is_none() {
        let found = "no store is named";
        let fix = "--store redis://HOST:PORT, postgres://USER@HOST/DATABASE, mysql://USER@HOST/DATABASE, sqlite:///PATH, or --config FILE";
        report.add(
            "store",
            [Finding::bad("open", Severity::Broken, found, fix)],
        );
        return;
    }
    let semel = match open(config).await {
        Ok(semel) => semel,
        Err(error) => {
            report.add("store", [unusable(&error)]);
            return;
        }
    };
    let capabilities = semel.store().capabilities();
    report.add("store", [kept(capabilities)]);
    match semel.store().diagnose().await {
        Ok(findings) => report.add("store", findings),
        Err(error) => {
            let found = format!("the store could not be looked over: {error}");
            let fix =
                "look at its log; does this user have the permission to ask for its settings?";
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

fn kept(store: Capabilities) -> Finding {
    match (store.durable, store.shared) {
        (true, true) if store.name == "sqlite" => Finding::good(
            "open",
            "every process on this host sees the records, and they outlive a process",
        ),
        (true, true) => Finding::good(
            "open",
            "every node sees the records, and they outlive a node",
        ),
        (false, true) => Finding::good("open", "every node sees the records"),
        _ => Finding::bad(
            "open",
            Severity::Note,
            "one process alone sees the records, and they end with it",
            "for trying out; for the rest a store that is shared: redis://…, postgres://…, mysql://…, sqlite://…",
        ),
    }
}
