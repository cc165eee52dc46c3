//! A file of the outbox that somebody wrote in: it is the call of its name, with its key, or is
//! refused and left as it was.
#![no_main]

use std::path::PathBuf;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use semel_client::{Outbox, OutboxError};
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};

const NAME: &str = "charge ord-1";
/// `printf 'charge ord-1' | sha256sum`
const FILE: &str = "fc202327faa60b9127b6cdfc55ea2baa6fc5b8226849b614f1e186db555cb229.call";

static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_current_thread().build().expect("a runtime"));
static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let root = PathBuf::from("/dev/shm");
    let root = if root.is_dir() { root } else { std::env::temp_dir() };
    root.join(format!("semel-fuzz-{}-outbox", std::process::id()))
});

fuzz_target!(|data: &[u8]| {
    let file = FOLDER.join(FILE);
    RUNTIME.block_on(async {
        let outbox = Outbox::open(&*FOLDER).await.expect("a folder");
        std::fs::write(&file, data).expect("a file");
        let pending = outbox.pending().await;
        match outbox.begin(NAME).await {
            Ok(call) => {
                assert!(std::str::from_utf8(data).is_ok(), "a call is text");
                assert_eq!(call.name(), NAME, "another call's file");
                let key = call.key().expect("a call has a key");
                // Where nobody reads it, a number may be larger than any that this could hold.
                if let Ok(said) = serde_json::from_slice::<Value>(data) {
                    assert_eq!(Some(key.as_str()), said["key"].as_str(), "a key is never made anew");
                }
                assert_eq!(pending.expect("the same file").len(), 1);
                call.forget().await.expect("a folder");
                assert!(!file.exists(), "what is forgotten is gone");
            }
            Err(error) => {
                assert!(matches!(error, OutboxError::Damaged { .. }), "{error}");
                assert!(pending.is_err(), "what can't be begun isn't sent either");
                assert_eq!(std::fs::read(&file).expect("it is still there"), data);
            }
        }
    });
});
