//! URLs of stores: what is refused, and what is shown of one, has no password in it.
#![no_main]

use std::error::Error as _;

use libfuzzer_sys::fuzz_target;
use semel_server::config::without_password;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    // Certificates are read where the URL says: not from devices.
    if text.contains("dev") || text.contains("proc") || text.contains('%') {
        return;
    }
    let checked = semel::check_store_url(text);
    let shown = without_password(text);
    // A password is what is between : and @, but in the path of SQLite's file.
    let passwords = text.matches(":hunter2@").count();
    if passwords == text.matches("hunter2").count() && !text.contains("sqlite:///") {
        assert!(!shown.contains("hunter2"), "{shown}");
        if let Err(error) = &checked {
            let cause = error.source().map(ToString::to_string);
            let told = format!("{error} {error:?} {}", cause.unwrap_or_default());
            assert!(!told.contains("hunter2"), "{told}");
        }
    }
    // What can be used, and hides nothing, is shown as it is.
    if checked.is_ok() {
        assert_ne!(shown, "…");
        let each: Vec<_> = text.split_whitespace().collect();
        if !text.contains(['@', '?']) {
            assert_eq!(shown, each.join(" "));
        }
        assert!(each.len() <= 2, "at most two stores");
    }
});
