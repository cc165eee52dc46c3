//! Rules of tenants, principals, tokens and routes.

use std::time::Duration;

use super::Rules;
use crate::config::identity::{Algorithm, IdentitySettings, IdentitySource, Jwt, Verify};
use crate::config::route::{Compare, KeyShape, Profile, RouteSettings};
use crate::config::tree::Config;
use crate::config::units::Span;
use crate::config::{is_at_loopback, is_loopback};

/// The least of the greatest ages of keys.
const MIN_KEY_AGE: Duration = Duration::from_secs(60);

impl Rules<'_> {
    pub(super) fn check_identity(
        &mut self,
        path: &str,
        identity: &IdentitySettings,
        config: &Config,
    ) {
        match identity.from {
            IdentitySource::None | IdentitySource::Host | IdentitySource::Jwt => {}
            IdentitySource::Header if identity.header.is_none() => self.report(
                &format!("{path}.header"),
                "from is \"header\", and no header is set",
                "write the header that the proxy in front sets, for example \"x-tenant\"",
            ),
            IdentitySource::Header => {}
            IdentitySource::Certificate => {
                if config.listener.tls.client_ca_file.is_none() {
                    self.report(
                        &format!("{path}.from"),
                        "from is \"certificate\", and the listener does not ask for client \
                         certificates",
                        "set listener.tls.client_ca_file",
                    );
                }
            }
        }
    }

    /// Warns if a public listener cannot tell its callers apart.
    pub(super) fn warn_of_shared_keys(&mut self, config: &Config) {
        let listener = &config.listener;
        let asks_for_certificates = listener.tls.client_ca_file.is_some();
        let is_public = asks_for_certificates || !is_loopback(&listener.address);
        if config.principals.from != IdentitySource::None
            || !is_public
            || config.upstream.urls.is_empty()
        {
            return;
        }
        let fix = match asks_for_certificates {
            true => "write principals.from = \"certificate\"",
            false => {
                "write principals.from = \"jwt\" (with jwt.key_file or jwt.jwks_url), \"header\" \
                 (with principals.header and listener.trusted_peers) or \"certificate\""
            }
        };
        self.warn(
            "principals.from",
            "other machines can reach this listener, and callers are not identified: all callers \
             share their keys, and a key that comes with other credentials is refused (422)",
            fix,
        );
    }

    pub(super) fn check_jwt(&mut self, config: &Config) {
        let jwt = &config.jwt;
        self.check_file("jwt.key_file", jwt.key_file.as_ref());
        self.check_file("jwt.jwks_file", jwt.jwks_file.as_ref());
        for file in &jwt.key_files {
            self.check_file("jwt.key_files", Some(file));
        }
        let used = [&config.tenants, &config.principals];
        if !used
            .iter()
            .any(|identity| identity.from == IdentitySource::Jwt)
        {
            return;
        }
        let has_key = jwt.key_file.is_some()
            || !jwt.key_files.is_empty()
            || jwt.jwks_file.is_some()
            || jwt.jwks_url.is_some();
        self.check_keys_and_claims(jwt);
        match (jwt.verify, has_key) {
            (Verify::Signature, false) => {
                let what = match jwt.algorithm {
                    Algorithm::Hs256 => "the shared secret",
                    Algorithm::Rs256 | Algorithm::Es256 => "the public key (PEM)",
                };
                let fix = format!("set jwt.key_file to a file with {what}");
                self.report(
                    "jwt.key_file",
                    "tokens can't be checked without a key",
                    &fix,
                );
            }
            (Verify::Upstream, _) => self.warn(
                "jwt.verify",
                "tokens are not verified: a forged token gets the replays of another tenant",
                "set jwt.key_file, unless a proxy in front has verified them",
            ),
            (Verify::Signature, true) => {}
        }
    }

    fn check_keys_and_claims(&mut self, jwt: &Jwt) {
        let is_set = jwt.jwks_file.is_some() || jwt.jwks_url.is_some();
        if is_set && jwt.algorithm == Algorithm::Hs256 {
            self.report(
                "jwt.algorithm",
                "HS256 needs a shared secret, and a JWKS has public keys only",
                "write jwt.algorithm = \"RS256\" or \"ES256\", or set jwt.key_file to the file \
                 with the secret",
            );
        }
        if let Some(url) = &jwt.jwks_url
            && !url.starts_with("https:")
            && !is_at_loopback(url)
        {
            self.report(
                "jwt.jwks_url",
                "without TLS, somebody on the network could replace the keys",
                "write https://",
            );
        }
        if jwt.audience.is_none() && jwt.issuer.is_none() {
            self.warn(
                "jwt.audience",
                "every token that these keys sign is accepted, also tokens for other applications",
                "set jwt.audience, jwt.issuer or both",
            );
        }
    }

    fn check_keys(&mut self, route: &RouteSettings, member: &impl Fn(&str) -> String) {
        let places = [
            ("key_header", &route.key_header),
            ("key_field", &route.key_field),
            ("key_pointer", &route.key_pointer),
            ("key_query", &route.key_query),
        ];
        let set = places.iter().filter(|(_, place)| place.is_some());
        let set: Vec<&str> = set.map(|(name, _)| *name).collect();
        if let [first, .., last] = &set[..] {
            self.report(
                &member(last),
                "the key can't be in several places",
                &format!("keep one of {first} and {last}"),
            );
        }
        let Some(Span(age)) = route.key_age else {
            return;
        };
        let has_time = matches!(
            route.key_form,
            None | Some(KeyShape::UuidV7 | KeyShape::Ulid)
        );
        if route.profile != Profile::Repeatable && !has_time {
            self.report(
                &member("key_form"),
                "keys of this form may carry no time, so their age can't be checked",
                "write key_form = \"uuidv7\" or \"ulid\", or leave key_age out",
            );
        }
        if age < MIN_KEY_AGE {
            self.report(
                &member("key_age"),
                "clocks differ, and clients retry for longer than that",
                "write at least \"1m\"",
            );
        }
    }

    pub(super) fn check_route(&mut self, path: &str, route: &RouteSettings) {
        let member = |name: &str| format!("{path}.{name}");
        self.check_keys(route, &member);
        let print = &route.fingerprint;
        if !print.include.is_empty() && !print.exclude.is_empty() {
            let message = "a body can't be compared by both include and exclude";
            self.report(&member("fingerprint.exclude"), message, "keep one of them");
        }
        let chosen = !print.include.is_empty() || !print.exclude.is_empty();
        if chosen && print.body != Compare::Meaning {
            let message = "include and exclude require body = \"meaning\"";
            self.report(
                &member("fingerprint.body"),
                message,
                "write body = \"meaning\"",
            );
        }
        if let Some(url) = &route.replay_auth_url
            && !(url.parse::<http::Uri>().is_ok() && url.starts_with("https://"))
            && !(url.starts_with("http://") && is_at_loopback(url))
        {
            self.report(
                &member("replay_auth_url"),
                "the URL must begin with https://, or be on this machine: callers' credentials are \
                 sent there",
                "write for example \"https://auth.example.com/check\"",
            );
        }
        let terms = route.policy().terms();
        if let Err(error) = terms {
            let fix = "check lease, retention, answer_retention and max_attempts";
            self.report(&member("lease"), &error.to_string(), fix);
        }
        if route
            .answer_retention
            .is_some_and(|kept| kept.0 > route.retention.0)
        {
            self.report(
                &member("answer_retention"),
                "responses can't be replayed for longer than their records are kept",
                "write a span of at most `retention`, or leave it out",
            );
        }
        if route.methods.as_ref().is_some_and(Vec::is_empty) {
            let message = "the list of methods is empty";
            self.report(
                &member("methods"),
                message,
                "list some methods, or write mode = \"off\"",
            );
        }
    }
}
