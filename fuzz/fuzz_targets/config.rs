//! Settings: what is wrong with them tells no password; what is accepted is shown, and is accepted
//! again as the same.
#![no_main]

use std::path::PathBuf;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use semel_server::config::{Findings, Loaded, Sources, load};
use serde_json::Value;

static FILE: LazyLock<PathBuf> = LazyLock::new(|| {
    let root = PathBuf::from("/dev/shm");
    let root = if root.is_dir() { root } else { std::env::temp_dir() };
    root.join(format!("semel-fuzz-{}.toml", std::process::id()))
});

fn loaded(text: &str) -> Result<Loaded, Findings> {
    std::fs::write(&*FILE, text).expect("a file");
    load(&Sources { file: Some(FILE.clone()), ..Sources::default() })
}

/// Passwords in URLs; `None` where names of hosts would be looked up.
fn passwords(name: &str, value: &Value) -> Option<usize> {
    match value {
        Value::String(text) if name == "address" => text.parse::<std::net::SocketAddr>().ok().map(|_| 0),
        Value::String(text) if ["url", "urls"].contains(&name) => Some(text.matches(":hunter2@").count()),
        Value::Array(items) => items.iter().map(|item| passwords(name, item)).sum(),
        Value::Object(members) => members.iter().map(|(name, value)| passwords(name, value)).sum(),
        _ => Some(0),
    }
}

/// What isn't set isn't written.
fn without_nothing(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let said = members.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(said.map(|(name, value)| (name, without_nothing(value))).collect())
        }
        Value::Array(items) => items.into_iter().map(without_nothing).collect(),
        other => other,
    }
}

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let said = toml::from_str::<Value>(text).unwrap_or_default();
    let Some(passwords) = passwords("", &said) else { return };
    if text.contains("dev") || text.contains("proc") {
        return; // Files are opened where the settings say: no devices.
    }
    let told = match loaded(text) {
        Err(findings) => findings.to_string(),
        Ok(loaded) => {
            let config = without_nothing(serde_json::to_value(&loaded.config).expect("JSON"));
            let again = toml::to_string(&config).expect("TOML");
            let again = self::loaded(&again).unwrap_or_else(|findings| panic!("{findings}\n{again}"));
            assert_eq!(without_nothing(serde_json::to_value(&again.config).expect("JSON")), config);
            format!("{:?} {:?}", loaded.effective_settings(), loaded.warnings)
        }
    };
    if passwords > 0 && passwords == text.matches("hunter2").count() {
        assert!(!told.contains("hunter2"), "{told}");
    }
});
