//! A journal that somebody wrote in: it is refused, or says nothing that was never so.
#![no_main]

use std::path::PathBuf;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use semel_stream::{
    Fsync, Gate, StreamKey, GateLimits, Mark, StreamOperation, SessionId, Tenant, GateVerdict,
};

const OPERATIONS: u64 = 24;

fn limits() -> GateLimits {
    GateLimits::default().with_tenants(8).with_window(64).with_shards(1).with_sessions(64)
}

fn session(number: u64) -> SessionId {
    SessionId::named(&format!("session-{}", number % 3))
}

/// A folder of this process's own, in memory where there is such a thing.
fn folder(name: &str) -> PathBuf {
    let root = PathBuf::from("/dev/shm");
    let root = if root.is_dir() { root } else { std::env::temp_dir() };
    root.join(format!("semel-fuzz-{}-{name}", std::process::id()))
}

/// A sound journal: its file's name, and what is in it.
static SOUND: LazyLock<(std::ffi::OsString, Vec<u8>)> = LazyLock::new(|| {
    let folder = folder("sound");
    let gate = Gate::open(&folder, limits(), Fsync::Never).expect("a new journal");
    for number in 0..OPERATIONS {
        let at = Mark::new(0, number / 3 + 1);
        let key = StreamKey::from_text(&number.to_le_bytes());
        let mut batch = gate.batch();
        let GateVerdict::Apply(ticket) = batch.offer(&StreamOperation::sequenced(session(number), at).with_key(key))
        else {
            panic!("each is the next one");
        };
        batch.applied(ticket);
        batch.commit().expect("room");
    }
    drop(gate);
    let files = std::fs::read_dir(&folder).expect("a folder");
    let mut files = files.map(|file| file.expect("a file").path());
    let journal = files.find(|path| path.extension().is_some_and(|ending| ending == "journal"));
    let journal = journal.expect("a journal");
    let bytes = std::fs::read(&journal).expect("its bytes");
    let _ = std::fs::remove_dir_all(&folder);
    (journal.file_name().expect("a name").to_owned(), bytes)
});

/// Writes in it: a place, and what to write there; the last byte says where to cut.
fn damaged(data: &[u8]) -> Option<Vec<u8>> {
    let (cut, edits) = data.split_last()?;
    let mut bytes = SOUND.1.clone();
    if *cut >= 128 {
        return Some(edits.to_vec()); // Nothing of it is left.
    }
    for edit in edits.chunks_exact(3) {
        let at = usize::from(u16::from_le_bytes([edit[0], edit[1]])) % bytes.len();
        bytes[at] ^= edit[2];
    }
    let keep = bytes.len() - bytes.len() * usize::from(*cut) / 128;
    bytes.truncate(keep);
    Some(bytes)
}

fuzz_target!(|data: &[u8]| {
    let Some(bytes) = damaged(data) else { return };
    let folder = folder("damaged");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join(&SOUND.0), &bytes).expect("a file");
    let Ok(gate) = Gate::open(&folder, limits(), Fsync::Never) else { return };
    // A beginning of what was written: no session is further than it was, nor has another tenant
    // anything.
    let mut marks = Vec::new();
    for number in 0..3 {
        let mark = gate.progress(Tenant::default(), session(number)).mark;
        assert!(mark.seqno.0 <= OPERATIONS / 3, "a session is further than it was");
        marks.push(mark);
    }
    assert_eq!(gate.usage(Tenant::named("other")), (0, 0));
    // What was read once is read again.
    drop(gate);
    let again = Gate::open(&folder, limits(), Fsync::Never).expect("what was taken once is sound");
    for (number, mark) in marks.into_iter().enumerate() {
        let now = again.progress(Tenant::default(), session(number as u64)).mark;
        assert_eq!(now, mark);
    }
});
