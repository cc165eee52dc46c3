//! What the settings mean together: contradictions, files that aren't there, and what is unwise.

mod callers;
mod ends;
mod kept;

use std::path::Path;

use super::Finding;
use super::check::missing;
use super::source::Said;
use super::tree::Config;

pub(super) struct Judged {
    pub(super) wrong: Vec<Finding>,
    pub(super) warnings: Vec<Finding>,
}

pub(super) fn judge(config: &Config, said: &Said) -> Judged {
    let mut judge = Judge {
        said,
        wrong: Vec::new(),
        warnings: Vec::new(),
    };
    judge.ends(config);
    judge.listener(config);
    judge.admin(&config.admin);
    judge.api(config);
    judge.jobs(config);
    judge.audit(&config.audit);
    judge.whose("tenants", &config.tenants, config);
    judge.whose("principals", &config.principals, config);
    judge.nobody(config);
    judge.jwt(config);
    judge.route("defaults", &config.defaults);
    for (at, route) in config.routes.iter().enumerate() {
        let path = format!("routes[{at}]");
        if route.path.is_empty() {
            judge.wrong(&path, "a route needs a path", "add path = \"/charges\"");
        }
        judge.route(&path, &route.settings);
    }
    Judged {
        wrong: judge.wrong,
        warnings: judge.warnings,
    }
}

struct Judge<'a> {
    said: &'a Said,
    wrong: Vec<Finding>,
    warnings: Vec<Finding>,
}

impl Judge<'_> {
    fn wrong(&mut self, path: &str, message: &str, fix: &str) {
        let mut finding = missing(path, message, fix);
        finding.origin = self.said.origin(path);
        self.wrong.push(finding);
    }

    fn warn(&mut self, path: &str, message: &str, fix: &str) {
        let mut finding = missing(path, message, fix);
        finding.origin = self.said.origin(path);
        self.warnings.push(finding);
    }

    fn file(&mut self, path: &str, file: Option<&String>) {
        if let Some(file) = file
            && let Err(error) = std::fs::File::open(Path::new(file))
        {
            let message = format!("the file {file} can't be read: {error}");
            self.wrong(path, &message, "check its path and who may read it");
        }
    }
}
