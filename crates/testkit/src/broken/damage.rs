//! Records that are damaged as they are kept.

use semel_core::{KeyHint, Namespace, Record};

use super::Bug;

/// The record as a store with this bug keeps it.
pub(super) fn damaged(bug: Option<Bug>, record: &Record) -> Record {
    let mut record = record.clone();
    match bug {
        Some(Bug::HintIsLost) => record.hint = KeyHint::default(),
        Some(Bug::NamespaceIsAscii) => {
            let ascii = |text: &str| text.replace(|c: char| !c.is_ascii(), "?");
            let old = &record.namespace;
            let parts = [old.environment(), old.tenant(), old.scope()].map(ascii);
            let [environment, tenant, scope] = &parts;
            if let Ok(namespace) = Namespace::new(environment, tenant, scope) {
                record.namespace = namespace;
            }
        }
        _ => {}
    }
    record
}
