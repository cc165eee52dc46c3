//! The settings that a reload cannot change.

use crate::config::Config;

/// The settings that need a restart.
const NEED_RESTART: [&str; 25] = [
    "api",
    "audit",
    "environment",
    "store",
    "engine",
    "jobs",
    "log",
    "metrics",
    "traces",
    "health",
    "listener.address",
    "listener.own_path",
    "listener.max_head",
    "listener.max_body",
    "listener.head_timeout",
    "listener.body_timeout",
    "limits",
    "admin.address",
    "admin.dashboard",
    "admin.open",
    "admin.token_file",
    "admin.operators_file",
    "admin.allowed_names",
    "admin.tls.client_ca_file",
    "admin.tls.client_optional",
];

/// The settings that differ and need a restart.
pub(super) fn find_ignored_changes(old: &Config, new: &Config) -> Vec<&'static str> {
    let values = [old, new].map(|config| {
        let mut values = serde_json::to_value(config).unwrap_or_default();
        forget_keys(&mut values);
        values
    });
    let differs = |path: &&str| {
        let pointer = format!("/{}", path.replace('.', "/"));
        values[0].pointer(&pointer) != values[1].pointer(&pointer)
    };
    NEED_RESTART.into_iter().filter(differs).collect()
}

/// Leaves out where encryption keys come from, and which one writes: a reload loads them again.
fn forget_keys(values: &mut serde_json::Value) {
    let encryption = values.pointer_mut("/store/encryption");
    if let Some(settings) = encryption.and_then(serde_json::Value::as_object_mut) {
        settings.retain(|name, _| name == "refuse_plain");
    }
}
