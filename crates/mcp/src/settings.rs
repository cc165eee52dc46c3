//! [`Settings`]: how tools are treated, by what the user says and, where the user says nothing, by what the server
//! says of them.

use std::time::Duration;

use semel::core::namespace::MAX_PART_BYTES;
use semel::{CrashPolicy, Mode, OnBusy, Policy};
use serde::Deserialize;

use crate::tools::Hints;

/// How a gateway treats calls.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The name of the wrapped server: a part of every scope, so that tools of two servers never meet.
    pub name: String,
    /// The tenant: keys of different ones never meet. Empty by default.
    pub tenant: String,
    /// What the user says of tools. Where several fit a tool's name, the first that says something counts.
    pub tools: Vec<ToolRule>,
    /// How long a call without a key is the same call when it is made again, where a tool's key is derived. 120 s.
    pub window: Duration,
    /// How long the server may take to answer a call before it is in doubt. 10 min.
    pub call_limit: Duration,
    /// How long a call that its caller cancelled may still be answered. 5 s.
    pub cancel_grace: Duration,
    /// Whether a replayed result says so in a line of text too: models see no metadata. No.
    pub say_replayed: bool,
    /// Whether tools that call themselves idempotent pass unprotected. No.
    pub bypass_idempotent: bool,
    /// Whether calls with a key carry a key for the systems behind the server. Yes.
    pub pass_key: bool,
    /// Lease, retention, waiting, bounds. The crash policy is each tool's own.
    pub policy: Policy,
}

impl Settings {
    /// Defaults, for the server of that name.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            tenant: String::new(),
            tools: Vec::new(),
            window: Duration::from_secs(120),
            call_limit: Duration::from_secs(600),
            cancel_grace: Duration::from_secs(5),
            say_replayed: false,
            bypass_idempotent: false,
            pass_key: true,
            policy: Policy {
                on_busy: OnBusy::Wait(Duration::from_secs(30)),
                ..Policy::default()
            },
        }
    }

    /// Says what is wrong with them.
    ///
    /// # Errors
    /// A sentence for whoever wrote them.
    pub fn check(&self) -> Result<(), String> {
        let name = &self.name;
        if name.is_empty() || name.len() > 64 || name.chars().any(|c| c.is_control() || c == '/') {
            return Err("the server's name must have 1 to 64 bytes, without `/`".to_owned());
        }
        for policy in [self.policy.clone(), self.windowed(CrashPolicy::Takeover)] {
            let told = |error| format!("lease, retention and window don't fit: {error}");
            policy.terms().map_err(told)?;
        }
        Ok(())
    }

    /// The scope that a tool's keys live in; `path` as [`crate::Caller`] has it.
    pub(crate) fn scope(&self, path: &str, tool: &str) -> String {
        let digest = |text: &str| {
            let digest = semel::core::Fingerprint::builder(&semel::Secret::none());
            hex(digest.part(text.as_bytes()).finish().as_bytes())
        };
        // A digest, as there may be tokens in it.
        let name = match path {
            "" => self.name.clone(),
            path => format!("{}:{}", self.name, &digest(path)[2..18]),
        };
        let whole = format!("{name}/{tool}");
        if whole.len() <= MAX_PART_BYTES && !whole.chars().any(char::is_control) {
            return whole;
        }
        // Too long to be shown: a digest instead, which no tool's own name looks like.
        format!("{name}//{}", digest(tool))
    }

    pub(crate) fn treatment(&self, tool: &str, hints: Hints) -> Treatment {
        let rules: Vec<&ToolRule> = self
            .tools
            .iter()
            .filter(|rule| fits(&rule.name, tool))
            .collect();
        let rules = rules.as_slice();
        let bypass = hints.read_only || (hints.idempotent && self.bypass_idempotent);
        let by_hint = match (hints.idempotent, hints.destructive) {
            (true, _) | (_, false) => CrashPolicy::Takeover,
            (false, true) => CrashPolicy::Hold,
        };
        let crash = rules.iter().find_map(|rule| rule.crash);
        let crash = crash.map_or(by_hint, CrashPolicy::from);
        let by_crash = match crash {
            CrashPolicy::Hold => Errors::Keep,
            CrashPolicy::Takeover => Errors::Release,
        };
        Treatment {
            bypass: rules.iter().find_map(|rule| rule.bypass).unwrap_or(bypass),
            key: rules.iter().find_map(|rule| rule.key).unwrap_or_default(),
            crash,
            errors: rules
                .iter()
                .find_map(|rule| rule.errors)
                .unwrap_or(by_crash),
        }
    }

    pub(crate) fn kept(&self, crash: CrashPolicy) -> Policy {
        Policy {
            crash,
            ..self.policy.clone()
        }
    }

    pub(crate) fn windowed(&self, crash: CrashPolicy) -> Policy {
        Policy {
            crash,
            retention: self.window.max(self.policy.lease),
            ..self.policy.clone()
        }
    }

    /// How long a call may take; as long as it does where calls are only observed (P39).
    pub(crate) fn limit(&self) -> Option<Duration> {
        self.enforces().then_some(self.call_limit)
    }

    pub(crate) fn enforces(&self) -> bool {
        self.policy.mode == Mode::Enforce
    }
}

/// What the user says of the tools of a name.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub struct ToolRule {
    /// A tool's name; `*` stands for any characters.
    #[serde(default)]
    pub name: String,
    /// Where its key comes from.
    pub key: Option<KeyRule>,
    /// What becomes of a call whose outcome nobody saw.
    pub crash: Option<Crash>,
    /// Whether its calls pass unprotected.
    pub bypass: Option<bool>,
    /// What becomes of a result that says that the tool failed.
    pub errors: Option<Errors>,
}

/// Where a call's key comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyRule {
    /// The caller's, where it brings one; without one the call passes unprotected.
    #[default]
    Optional,
    /// The caller's, or one made of principal, session, tool and arguments.
    Derive,
    /// The caller's; without one the call is refused.
    Required,
}

/// What becomes of a call whose outcome nobody saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Crash {
    /// It is in doubt until resolved: at most once.
    Hold,
    /// The next call runs it again: at least once.
    Takeover,
}

impl From<Crash> for CrashPolicy {
    fn from(crash: Crash) -> Self {
        match crash {
            Crash::Hold => Self::Hold,
            Crash::Takeover => Self::Takeover,
        }
    }
}

/// What becomes of a result that says that the tool failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Errors {
    /// It is kept and replayed: whether the tool acted before it failed is not known.
    Keep,
    /// The same call runs again.
    Release,
}

/// How the calls of one tool are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Treatment {
    pub(crate) bypass: bool,
    pub(crate) key: KeyRule,
    pub(crate) crash: CrashPolicy,
    pub(crate) errors: Errors,
}

/// Whether `name` fits a pattern in which `*` stands for any characters.
fn fits(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = name.strip_prefix(parts.next().unwrap_or_default()) else {
        return false;
    };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else {
        return rest.is_empty();
    };
    for part in parts {
        let Some(at) = rest.find(part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
    }
    rest.len() >= last.len() && rest.ends_with(last)
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_characters() {
        for (pattern, name, is) in [
            ("pay", "pay", true),
            ("pay", "payout", false),
            ("pay*", "payout", true),
            ("*", "", true),
            ("*_send", "mail_send", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b", "ab", true),
            ("ab*ba", "aba", false),
            ("a*b*c", "a-c-b", false),
        ] {
            assert_eq!(fits(pattern, name), is, "{pattern} {name}");
        }
    }

    #[test]
    fn a_tool_is_treated_by_the_users_word_then_by_its_own() {
        let mut settings = Settings::new("vendors");
        let of = |settings: &Settings, read_only, idempotent, destructive| {
            settings.treatment(
                "submit",
                Hints {
                    read_only,
                    idempotent,
                    destructive,
                },
            )
        };
        assert!(of(&settings, true, false, true).bypass);
        assert_eq!(of(&settings, false, false, true).crash, CrashPolicy::Hold);
        assert_eq!(
            of(&settings, false, false, false).crash,
            CrashPolicy::Takeover
        );
        assert_eq!(
            of(&settings, false, true, true).crash,
            CrashPolicy::Takeover
        );
        assert!(!of(&settings, false, true, true).bypass);
        settings.bypass_idempotent = true;
        assert!(of(&settings, false, true, true).bypass);
        settings.tools.push(ToolRule {
            name: "sub*".to_owned(),
            key: Some(KeyRule::Derive),
            crash: Some(Crash::Takeover),
            bypass: Some(false),
            errors: Some(Errors::Keep),
        });
        let expected = Treatment {
            bypass: false,
            key: KeyRule::Derive,
            crash: CrashPolicy::Takeover,
            errors: Errors::Keep,
        };
        assert_eq!(of(&settings, true, true, true), expected);
    }

    #[test]
    fn a_long_name_of_a_tool_still_has_a_scope_of_its_own() {
        let settings = Settings::new("vendors");
        let (one, other) = (
            settings.scope("", &"a".repeat(200)),
            settings.scope("", &"a".repeat(201)),
        );
        assert_ne!(one, other);
        assert!(one.len() <= MAX_PART_BYTES && other.len() <= MAX_PART_BYTES);
    }

    #[test]
    fn servers_behind_one_address_have_scopes_of_their_own_which_show_no_token() {
        let settings = Settings::new(&"n".repeat(64));
        let scopes = ["", "/a?", "/b?", "/a?token=secret"].map(|path| {
            let scope = settings.scope(path, &"t".repeat(200));
            assert!(scope.len() <= MAX_PART_BYTES, "{scope}");
            settings.scope(path, "pay")
        });
        for (n, scope) in scopes.iter().enumerate() {
            assert!(!scopes[..n].contains(scope), "{scope}");
            assert!(!scope.contains("secret"), "{scope}");
            assert!(scope.ends_with("/pay"), "{scope}");
        }
    }

    #[test]
    fn settings_that_cannot_work_are_refused_with_a_sentence() {
        let mut settings = Settings::new("a/b");
        assert!(settings.check().unwrap_err().contains("name"));
        settings = Settings::new("a");
        assert!(settings.check().is_ok());
        settings.policy.lease = Duration::from_secs(1_000_000);
        assert!(settings.check().unwrap_err().contains("lease"));
    }
}
