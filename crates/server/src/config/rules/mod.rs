//! Rules across settings: contradictions, missing files, and warnings about risky settings.

mod audit;
mod callers;
mod network;

use std::path::Path;

use super::SettingsFinding;
use super::check::new_finding;
use super::source::RawSettings;
use super::tree::Config;

/// The result of all rules.
pub(super) struct RuleFindings {
    pub(super) errors: Vec<SettingsFinding>,
    pub(super) warnings: Vec<SettingsFinding>,
}

pub(super) fn check_rules(config: &Config, raw: &RawSettings) -> RuleFindings {
    let mut rules = Rules {
        raw,
        errors: Vec::new(),
        warnings: Vec::new(),
    };
    rules.check_endpoints(config);
    rules.check_listener(config);
    rules.check_admin(&config.admin);
    rules.check_api(config);
    rules.check_jobs(config);
    rules.check_audit(&config.audit);
    rules.check_identity("tenants", &config.tenants, config);
    rules.check_identity("principals", &config.principals, config);
    rules.warn_of_shared_keys(config);
    rules.check_jwt(config);
    rules.check_route("defaults", &config.defaults);
    for (at, route) in config.routes.iter().enumerate() {
        let path = format!("routes[{at}]");
        if route.path.is_empty() {
            rules.report(&path, "a route needs a path", "add path = \"/charges\"");
        }
        rules.check_route(&path, &route.settings);
    }
    RuleFindings {
        errors: rules.errors,
        warnings: rules.warnings,
    }
}

struct Rules<'a> {
    raw: &'a RawSettings,
    errors: Vec<SettingsFinding>,
    warnings: Vec<SettingsFinding>,
}

impl Rules<'_> {
    fn report(&mut self, path: &str, message: &str, fix: &str) {
        let mut finding = new_finding(path, message, fix);
        finding.origin = self.raw.origin(path);
        self.errors.push(finding);
    }

    fn warn(&mut self, path: &str, message: &str, fix: &str) {
        let mut finding = new_finding(path, message, fix);
        finding.origin = self.raw.origin(path);
        self.warnings.push(finding);
    }

    fn check_file(&mut self, path: &str, file: Option<&String>) {
        if let Some(file) = file
            && let Err(error) = std::fs::File::open(Path::new(file))
        {
            let message = format!("the file {file} can't be read: {error}");
            self.report(path, &message, "check the path and the permissions");
        }
    }
}
