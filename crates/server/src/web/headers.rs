//! Edits of header maps.

use http::header::{HeaderMap, HeaderName};

/// Removes every header that `keeps` refuses.
pub(crate) fn remove_unless(headers: &mut HeaderMap, keeps: impl Fn(&HeaderName) -> bool) {
    let gone: Vec<HeaderName> = headers
        .keys()
        .filter(|name| !keeps(name))
        .cloned()
        .collect();
    for name in gone {
        headers.remove(name);
    }
}
