//! Who calls, and what a route asks of its callers.

use super::Judge;
use crate::config::route::{Compare, RouteSettings};
use crate::config::tree::Config;
use crate::config::whose::{Algorithm, From, Jwt, Verify, Whose};
use crate::config::{is_at_loopback, is_loopback};

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

    /// Said loudly: whoever listens to others should know who they are.
    pub(super) fn nobody(&mut self, config: &Config) {
        let listener = &config.listener;
        let asks = listener.tls.client_ca_file.is_some();
        let is_reached = asks || !is_loopback(&listener.address);
        if config.principals.from != From::None || !is_reached || config.upstream.urls.is_empty() {
            return;
        }
        let fix = match asks {
            true => "write principals.from = \"certificate\"",
            false => {
                "write principals.from = \"jwt\" (with jwt.key_file or jwt.jwks_url), \"header\" (with principals.header and listener.trusted_peers) or \"certificate\""
            }
        };
        self.warn(
            "principals.from",
            "others can reach this listener, and nothing says who calls: all callers share their keys, and a key that is used with other credentials is refused (422)",
            fix,
        );
    }

    pub(super) fn jwt(&mut self, config: &Config) {
        let jwt = &config.jwt;
        self.file("jwt.key_file", jwt.key_file.as_ref());
        self.file("jwt.jwks_file", jwt.jwks_file.as_ref());
        for file in &jwt.key_files {
            self.file("jwt.key_files", Some(file));
        }
        let used = [&config.tenants, &config.principals];
        if !used.iter().any(|whose| whose.from == From::Jwt) {
            return;
        }
        let has_key = jwt.key_file.is_some()
            || !jwt.key_files.is_empty()
            || jwt.jwks_file.is_some()
            || jwt.jwks_url.is_some();
        self.claims(jwt);
        match (jwt.verify, has_key) {
            (Verify::Signature, false) => {
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
            (Verify::Signature, true) => {}
        }
    }

    fn claims(&mut self, jwt: &Jwt) {
        let is_set = jwt.jwks_file.is_some() || jwt.jwks_url.is_some();
        if is_set && jwt.algorithm == Algorithm::Hs256 {
            self.wrong(
                "jwt.algorithm",
                "a set of public keys has no shared secret",
                "write jwt.algorithm = \"RS256\" or \"ES256\", or name the secret's file: jwt.key_file",
            );
        }
        if let Some(url) = &jwt.jwks_url
            && !url.starts_with("https:")
            && !is_at_loopback(url)
        {
            self.wrong(
                "jwt.jwks_url",
                "whoever is on the way could put keys of their own in place of these",
                "write https://",
            );
        }
        if jwt.audience.is_none() && jwt.issuer.is_none() {
            self.warn(
                "jwt.audience",
                "any token that these keys sign is taken, also one for another application",
                "set jwt.audience, jwt.issuer or both",
            );
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
