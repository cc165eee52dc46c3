//! The settings.

use semel::core::diagnosis::{Finding, Severity};
use semel_server::config::{Config, Finding as Wrong};

use super::Report;
use crate::serve::Settings;

/// Judges the settings; answers with what of them can be gone by.
pub(super) fn look(settings: &Settings, report: &mut Report) -> Option<Config> {
    let told = |severity: Severity, wrong: &Wrong| {
        let found = match wrong.path.as_str() {
            "" => wrong.message.clone(),
            path => format!("{path}: {}", wrong.message),
        };
        Finding::bad("settings", severity, found, wrong.fix.clone())
    };
    match settings.read() {
        Ok(loaded) => {
            if loaded.warnings.is_empty() {
                report.add(
                    "settings",
                    [Finding::good("settings", "nothing is wrong with them")],
                );
            }
            let warnings = loaded.warnings.iter();
            report.add("settings", warnings.map(|one| told(Severity::Warning, one)));
            Some(loaded.config)
        }
        Err(findings) => {
            let only_service = findings.0.iter().all(|one| one.path == "upstream.urls");
            if only_service && !settings.names_a_file() {
                // Somebody who asks about a store alone has no service to name.
                let found = "no service is named, so only the store is looked at";
                let fix = "--upstream URL, or --config FILE, looks at the rest too";
                report.add(
                    "settings",
                    [Finding::bad("settings", Severity::Note, found, fix)],
                );
            } else {
                let wrong = findings.0.iter();
                report.add("settings", wrong.map(|one| told(Severity::Broken, one)));
            }
            // A file that is wrong may name its store wrongly too.
            (!settings.names_a_file()).then(|| settings.only_store())
        }
    }
}
