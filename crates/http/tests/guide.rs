//! The guide says what the code does: its tables are the code's.

use semel_core::Code;
use semel_http::{KEPT_HEADERS, PROFILES};

const GUIDE: &str = include_str!("../../../docs/http.md");
const IETF: &str = include_str!("../../../docs/ietf.md");
const STANDARDS: &str = include_str!("../../../docs/standards.md");

const ICEBERG: &str = include_str!("../../server/tests/sidecar/iceberg.rs");
const AZURE: &str = include_str!("../../server/tests/sidecar/azure.rs");
const KEY_RULES: &str = include_str!("../../server/tests/sidecar/key_rules.rs");

#[test]
fn every_code_of_the_layer_is_in_the_guide() {
    let codes = Code::ALL
        .iter()
        .filter_map(|code| Some((code, code.grpc()?)));
    let mut count = 0;
    for (code, grpc) in codes {
        let retryable = if code.is_retryable() { "yes" } else { "no" };
        let (status, title) = (code.status(), code.title());
        let line = format!("| `{code}` | {status} | {grpc} | {retryable} | {title} |");
        assert!(GUIDE.contains(&line), "missing: {line}");
        count += 1;
    }
    // And no other row.
    let (_, table) = GUIDE
        .split_once("| code | status | gRPC |")
        .expect("the table");
    let (table, _) = table.split_once("\n\n").expect("its end");
    assert_eq!(table.matches("\n| `").count(), count);
}

#[test]
fn every_profile_and_kept_header_is_in_the_guide() {
    let mismatches: Vec<String> = PROFILES
        .iter()
        .map(|terms| terms.mismatch.to_string())
        .collect();
    let line = format!("| key with another payload | {} |", mismatches.join(" | "));
    assert!(GUIDE.contains(&line), "missing: {line}");
    let kept = GUIDE
        .lines()
        .find(|line| line.starts_with("| `keep_header`"));
    let kept = kept.expect("a line about headers").to_ascii_lowercase();
    for name in KEPT_HEADERS {
        assert!(kept.contains(name.as_str()), "missing: {name}");
    }
    assert_eq!(kept.matches('`').count(), 2 * (KEPT_HEADERS.len() + 1));
}

#[test]
fn every_test_that_the_pages_on_standards_name_exists() {
    let sources = [
        ("keys", include_str!("layer/keys.rs")),
        ("waiting", include_str!("layer/waiting.rs")),
        ("replay", include_str!("layer/replay.rs")),
        ("failures", include_str!("layer/failures.rs")),
        ("key_age", include_str!("layer/key_age.rs")),
        ("profiles", include_str!("layer/profiles.rs")),
        ("repeatable", include_str!("layer/repeatable.rs")),
        ("profile::tests", include_str!("../src/profile.rs")),
        ("sidecar::iceberg", ICEBERG),
        ("sidecar::azure", AZURE),
        ("sidecar::key_rules", KEY_RULES),
        ("tenants", include_str!("layer/tenants.rs")),
        ("key_rules", include_str!("layer/key_rules.rs")),
        ("payload::tests", include_str!("../src/payload.rs")),
    ];
    let is_test = |text: &&str| text.contains("::");
    let named = IETF.split('`').filter(is_test);
    let also = STANDARDS.split('`').filter(is_test);
    let mut count = 0;
    for name in named.chain(also) {
        let (module, test) = name.rsplit_once("::").expect("a path");
        let source = sources.iter().find(|(known, _)| *known == module);
        let (_, source) = source.unwrap_or_else(|| panic!("unknown module {module}"));
        assert!(source.contains(&format!("fn {test}()")), "{name}");
        count += 1;
    }
    assert!(count > 50);
}
