//! Who calls, and what a route asks of its callers.

use super::Judge;
use crate::config::route::{Compare, RouteSettings};
use crate::config::tree::Config;
use crate::config::whose::{Algorithm, From, Verify, Whose};

impl Judge<'_> {
    pub(super) fn whose(&mut self, path: &str, whose: &Whose, config: &Config) {
        match whose.from {
            From::None | From::Jwt => {}
            From::Header if whose.header.is_none() => self.wrong(
                &format!("{path}.header"),
                "it comes from a header, and none is named",
                "name the header that whatever is in front sets, for example \"x-tenant\"",
            ),
            From::Header => {}
            From::Certificate => {
                if config.listener.tls.client_ca_file.is_none() {
                    self.wrong(
                        &format!("{path}.from"),
                        "it comes from clients' certificates, and none are asked for",
                        "set listener.tls.client_ca_file",
                    );
                }
            }
        }
    }

    pub(super) fn jwt(&mut self, config: &Config) {
        let jwt = &config.jwt;
        self.file("jwt.key_file", jwt.key_file.as_ref());
        let used = [&config.tenants, &config.principals];
        if !used.iter().any(|whose| whose.from == From::Jwt) {
            return;
        }
        match (jwt.verify, &jwt.key_file) {
            (Verify::Signature, None) => {
                let what = match jwt.algorithm {
                    Algorithm::Hs256 => "the shared secret",
                    Algorithm::Rs256 | Algorithm::Es256 => "the public key (PEM)",
                };
                let fix = format!("set jwt.key_file to a file with {what}");
                self.wrong(
                    "jwt.key_file",
                    "tokens can't be checked without a key",
                    &fix,
                );
            }
            (Verify::Upstream, _) => self.warn(
                "jwt.verify",
                "tokens are believed unchecked: a forged one gets another tenant's replays",
                "set jwt.key_file, unless something in front has checked them",
            ),
            (Verify::Signature, Some(_)) => {}
        }
    }

    pub(super) fn route(&mut self, path: &str, route: &RouteSettings) {
        let member = |name: &str| format!("{path}.{name}");
        if route.key_header.is_some() && route.key_field.is_some() {
            let message = "the key can't be both in a header and in the body";
            self.wrong(
                &member("key_field"),
                message,
                "keep one of key_header and key_field",
            );
        }
        let print = &route.fingerprint;
        if !print.include.is_empty() && !print.exclude.is_empty() {
            let message = "a body can't be compared by both include and exclude";
            self.wrong(&member("fingerprint.exclude"), message, "keep one of them");
        }
        let chosen = !print.include.is_empty() || !print.exclude.is_empty();
        if chosen && print.body != Compare::Meaning {
            let message = "include and exclude work on bodies that are compared by their meaning";
            self.wrong(
                &member("fingerprint.body"),
                message,
                "write body = \"meaning\"",
            );
        }
        let terms = crate::stack::policy(route).terms();
        if let Err(error) = terms {
            let fix = "see lease, retention and max_attempts";
            self.wrong(&member("lease"), &error.to_string(), fix);
        }
        if route.methods.is_empty() {
            let message = "no method is covered";
            self.wrong(
                &member("methods"),
                message,
                "name some, or write mode = \"off\"",
            );
        }
    }
}
