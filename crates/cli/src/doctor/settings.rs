//! Checks the settings.

use semel::core::diagnosis::{Finding, Severity};
use semel_server::config::{Config, SettingsFinding as Wrong};

use super::Report;
use crate::serve::Settings;

/// Checks the settings, and returns those that the other checks can use: only valid ones if
/// `whole`.
pub(super) fn check(settings: &Settings, whole: bool, report: &mut Report) -> Option<Config> {
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
                    [Finding::good("settings", "the settings are valid")],
                );
            }
            let warnings = loaded.warnings.iter();
            report.add("settings", warnings.map(|one| told(Severity::Warning, one)));
            Some(loaded.config)
        }
        Err(findings) => {
            let only_service = findings.0.iter().all(|one| one.path == "upstream.urls");
            if only_service && !settings.has_file() && !whole {
                // A check of a store alone needs no service.
                let found = "no service is given, so only the store is checked";
                let fix = "--upstream URL or --config FILE checks the rest, too";
                report.add(
                    "settings",
                    [Finding::bad("settings", Severity::Note, found, fix)],
                );
            } else {
                let wrong = findings.0.iter();
                report.add("settings", wrong.map(|one| told(Severity::Broken, one)));
            }
            // An invalid file may also name a wrong store.
            (!settings.has_file() && !whole).then(|| settings.store_only())
        }
    }
}
