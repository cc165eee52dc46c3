//! [`Settings`]: how the gateway treats tools. The user's rules come first, then the hints of the
//! server.

use std::sync::Arc;
use std::time::Duration;

use semel::core::hex::hex;
use semel::core::namespace::MAX_PART_BYTES;
use semel::{CrashPolicy, Mode, OnBusy, Policy};
use serde::Deserialize;

use crate::conversation::ConversationSource;
use crate::hints::Hints;
use crate::identity::IdentityRule;
use crate::pointer::ArgumentPath;
use crate::verify::VerifyRule;

/// The most arguments that a rule names.
const MAX_PATHS: usize = 32;

/// The settings of a gateway.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The name of the wrapped server. It is part of every scope, so each server has its own keys.
    pub name: String,
    /// The tenant. Each tenant has its own keys. Empty by default.
    pub tenant: String,
    /// The rules for tools. If several match a tool, the first one that sets a value wins.
    pub tools: Vec<ToolRule>,
    /// What tells conversations apart. By default the session of the protocol.
    pub conversation: ConversationSource,
    /// How long a derived key lives: an equal call within this time is a retry. The default is 120
    /// s.
    pub window: Duration,
    /// How long the server may take to answer before a call is in doubt. The default is 10 min.
    pub call_limit: Duration,
    /// How long the gateway waits for the answer to a cancelled call. The default is 5 s.
    pub cancel_grace: Duration,
    /// Whether a replayed result also says so in its text, as models do not see metadata. Off by
    /// default.
    pub say_replayed: bool,
    /// Whether tools with `idempotentHint` pass unprotected. Off by default.
    pub bypass_idempotent: bool,
    /// Whether keyed calls carry a key for the systems behind the server. On by default.
    pub pass_key: bool,
    /// Lease, retention, waiting and limits. The crash policy comes from each tool's rule.
    pub policy: Policy,
}

impl Settings {
    /// The default settings for the server of this name.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            tenant: String::new(),
            tools: Vec::new(),
            conversation: ConversationSource::default(),
            window: Duration::from_secs(120),
            call_limit: Duration::from_secs(600),
            cancel_grace: Duration::from_secs(5),
            say_replayed: false,
            bypass_idempotent: false,
            pass_key: true,
            policy: Policy::default().with_on_busy(OnBusy::Wait(Duration::from_secs(30))),
        }
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// A sentence that says which setting is wrong.
    pub fn check(&self) -> Result<(), String> {
        let name = &self.name;
        if name.is_empty() || name.len() > 64 || name.chars().any(|c| c.is_control() || c == '/') {
            return Err("the server's name must have 1 to 64 bytes, without `/`".to_owned());
        }
        for policy in [
            self.policy.clone(),
            self.windowed_policy(CrashPolicy::Takeover),
        ] {
            let told = |error| format!("lease, retention and window don't fit: {error}");
            policy.terms().map_err(told)?;
        }
        self.tools.iter().try_for_each(ToolRule::check)
    }

    /// The scope of a tool's keys. See [`crate::Caller`] for `path`.
    pub(crate) fn scope(&self, path: &str, tool: &str) -> String {
        let digest = |text: &str| {
            let digest = semel::core::Fingerprint::builder(&semel::Secret::none());
            hex(digest.part(text.as_bytes()).finish().as_bytes())
        };
        // The path may contain tokens, so the scope holds its digest.
        let name = match path {
            "" => self.name.clone(),
            path => format!("{}:{}", self.name, &digest(path)[2..18]),
        };
        let whole = format!("{name}/{tool}");
        if whole.len() <= MAX_PART_BYTES && !whole.chars().any(char::is_control) {
            return whole;
        }
        // A name that is too long becomes a digest. The double slash keeps it apart from other
        // names.
        format!("{name}//{}", digest(tool))
    }

    /// The rules for a tool, the most specific first.
    fn rules<'a>(&'a self, tool: &'a str) -> impl Iterator<Item = &'a ToolRule> {
        let rules = self.tools.iter();
        rules.filter(move |rule| matches_pattern(&rule.name, tool))
    }

    /// Which arguments identify a call of the tool; `None` if all do.
    pub(crate) fn identity_rule<'a>(&'a self, tool: &'a str) -> Option<IdentityRule<'a>> {
        self.rules(tool).find_map(ToolRule::identity_rule)
    }

    /// How to find out whether a call of the tool took effect.
    pub(crate) fn verify_rule(&self, tool: &str) -> Option<Arc<VerifyRule>> {
        let mut rules = self.rules(tool);
        rules.find_map(|rule| rule.verify.clone())
    }

    pub(crate) fn treatment(&self, tool: &str, hints: Hints) -> Treatment {
        let rules: Vec<&ToolRule> = self.rules(tool).collect();
        let rules = rules.as_slice();
        let bypass = hints.read_only || (hints.idempotent && self.bypass_idempotent);
        let by_hint = match (hints.idempotent, hints.destructive) {
            (true, _) | (_, false) => CrashPolicy::Takeover,
            (false, true) => CrashPolicy::Hold,
        };
        let crash = rules.iter().find_map(|rule| rule.crash);
        let crash = crash.map_or(by_hint, CrashPolicy::from);
        let by_crash = match crash {
            CrashPolicy::Hold => ErrorRule::Keep,
            CrashPolicy::Takeover => ErrorRule::Release,
        };
        Treatment {
            bypass: rules.iter().find_map(|rule| rule.bypass).unwrap_or(bypass),
            key: rules
                .iter()
                .find_map(|rule| rule.key_rule())
                .unwrap_or_default(),
            crash,
            errors: rules
                .iter()
                .find_map(|rule| rule.errors)
                .unwrap_or(by_crash),
        }
    }

    pub(crate) fn policy_with(&self, crash: CrashPolicy) -> Policy {
        self.policy.clone().with_crash(crash)
    }

    pub(crate) fn windowed_policy(&self, crash: CrashPolicy) -> Policy {
        self.policy
            .clone()
            .with_crash(crash)
            .with_retention(self.window.max(self.policy.lease))
    }

    /// The time limit of a call. In observe mode there is none (P39).
    pub(crate) fn limit(&self) -> Option<Duration> {
        self.enforces().then_some(self.call_limit)
    }

    pub(crate) fn enforces(&self) -> bool {
        self.policy.mode == Mode::Enforce
    }
}

/// A rule for tools.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub struct ToolRule {
    /// The name of the tool; `*` matches any characters.
    #[serde(default)]
    pub name: String,
    /// Where the key comes from.
    pub key: Option<KeyRule>,
    /// What happens to a call with an unknown outcome.
    pub crash: Option<CrashRule>,
    /// Whether calls pass unprotected.
    pub bypass: Option<bool>,
    /// What happens to a result with `isError`.
    pub errors: Option<ErrorRule>,
    /// The only arguments that identify a call. The key is derived from them.
    pub identity: Option<Vec<ArgumentPath>>,
    /// The arguments that don't identify a call. The key is derived from all others.
    pub ignore: Option<Vec<ArgumentPath>>,
    /// How to find out whether a call in doubt took effect.
    #[serde(skip)]
    pub verify: Option<Arc<VerifyRule>>,
}

impl ToolRule {
    fn identity_rule(&self) -> Option<IdentityRule<'_>> {
        let only = self.identity.as_deref().map(IdentityRule::Only);
        only.or_else(|| self.ignore.as_deref().map(IdentityRule::Except))
    }

    /// A rule about identity asks for a derived key.
    fn key_rule(&self) -> Option<KeyRule> {
        let derive = self.identity_rule().map(|_| KeyRule::Derive);
        self.key.or(derive)
    }

    fn check(&self) -> Result<(), String> {
        let wrong = |what: &str| Err(format!("[tools.{:?}] {what}", self.name));
        let lists = [&self.identity, &self.ignore];
        for list in lists.into_iter().flatten() {
            if list.is_empty() || list.len() > MAX_PATHS {
                return wrong("identity and ignore name 1 to 32 arguments");
            }
        }
        if self.identity.is_some() && self.ignore.is_some() {
            return wrong("identity and ignore exclude each other");
        }
        if self.identity_rule().is_some() && self.key_rule() != Some(KeyRule::Derive) {
            return wrong("identity and ignore are for derived keys: set key = \"derive\"");
        }
        match self.verify.as_ref().map(|verify| verify.check()) {
            Some(Err(error)) => wrong(&error),
            _ => Ok(()),
        }
    }
}

/// Where the key of a call comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyRule {
    /// From the caller. A call without a key passes unprotected.
    #[default]
    Optional,
    /// From the caller, else derived from principal, session, tool and arguments.
    Derive,
    /// From the caller. A call without a key is refused.
    Required,
}

/// What happens to a call with an unknown outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CrashRule {
    /// It stays in doubt until it is resolved (at most once).
    Hold,
    /// The next call runs it again (at least once).
    Takeover,
}

impl From<CrashRule> for CrashPolicy {
    fn from(crash: CrashRule) -> Self {
        match crash {
            CrashRule::Hold => Self::Hold,
            CrashRule::Takeover => Self::Takeover,
        }
    }
}

/// What happens to a result with `isError`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorRule {
    /// It is stored and replayed, because the tool may have acted before it failed.
    Keep,
    /// It frees the key, and the same call runs again.
    Release,
}

/// The treatment of one tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Treatment {
    pub(crate) bypass: bool,
    pub(crate) key: KeyRule,
    pub(crate) crash: CrashPolicy,
    pub(crate) errors: ErrorRule,
}

/// Whether `name` matches a pattern in which `*` stands for any characters.
fn matches_pattern(pattern: &str, name: &str) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn star_matches_any_characters() {
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
            assert_eq!(matches_pattern(pattern, name), is, "{pattern} {name}");
        }
    }

    #[test]
    fn user_rules_override_the_hints_of_a_tool() {
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
            crash: Some(CrashRule::Takeover),
            bypass: Some(false),
            errors: Some(ErrorRule::Keep),
            ..ToolRule::default()
        });
        let expected = Treatment {
            bypass: false,
            key: KeyRule::Derive,
            crash: CrashPolicy::Takeover,
            errors: ErrorRule::Keep,
        };
        assert_eq!(of(&settings, true, true, true), expected);
    }

    #[test]
    fn long_tool_name_still_has_its_own_scope() {
        let settings = Settings::new("vendors");
        let (one, other) = (
            settings.scope("", &"a".repeat(200)),
            settings.scope("", &"a".repeat(201)),
        );
        assert_ne!(one, other);
        assert!(one.len() <= MAX_PART_BYTES && other.len() <= MAX_PART_BYTES);
    }

    #[test]
    fn scopes_differ_by_path_and_reveal_no_token() {
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
    fn rule_about_identity_derives_the_key() {
        let paths = || Some(vec![ArgumentPath::parse("/to").unwrap()]);
        let of = |rule: ToolRule| {
            let mut settings = Settings::new("a");
            let name = "pay".to_owned();
            settings.tools.push(ToolRule { name, ..rule });
            settings
        };
        let settings = of(ToolRule {
            identity: paths(),
            ..ToolRule::default()
        });
        assert!(settings.check().is_ok());
        let treatment = settings.treatment("pay", Hints::default());
        assert_eq!(treatment.key, KeyRule::Derive);
        assert!(settings.identity_rule("pay").is_some());
        assert!(settings.identity_rule("play").is_none());
        let both = of(ToolRule {
            identity: paths(),
            ignore: paths(),
            ..ToolRule::default()
        });
        assert!(both.check().unwrap_err().contains("exclude"));
        let unused = of(ToolRule {
            ignore: paths(),
            key: Some(KeyRule::Optional),
            ..ToolRule::default()
        });
        assert!(unused.check().unwrap_err().contains("derive"));
        let none = of(ToolRule {
            identity: Some(Vec::new()),
            ..ToolRule::default()
        });
        assert!(none.check().unwrap_err().contains("1 to 32"));
    }

    #[test]
    fn invalid_settings_are_refused_with_a_reason() {
        let mut settings = Settings::new("a/b");
        assert!(settings.check().unwrap_err().contains("name"));
        settings = Settings::new("a");
        assert!(settings.check().is_ok());
        settings.policy.lease = Duration::from_secs(1_000_000);
        assert!(settings.check().unwrap_err().contains("lease"));
    }
}
