//! What a gate keeps on disk, and what becomes of it when a process or a machine dies.

use std::fs::OpenOptions;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use semel_stream::{
    Epoch, Fsync, Gate, GateLimits, GateVerdict, JournalError, Mark, SessionId, StreamKey,
    StreamOperation, Tenant,
};

const FRAME: u64 = 80;

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let name = format!("semel-journal-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&folder);
        Self(folder)
    }

    fn open(&self) -> Gate {
        self.try_open().expect("a journal")
    }

    fn try_open(&self) -> Result<Gate, JournalError> {
        let limits = GateLimits::default().with_window(1_000).with_shards(1);
        Gate::open(&self.0, limits, Fsync::Always)
    }

    fn file(&self) -> PathBuf {
        let files = journals(&self.0);
        assert_eq!(files.len(), 1, "{files:?}");
        files[0].clone()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn journals(folder: &Path) -> Vec<PathBuf> {
    let items = std::fs::read_dir(folder).expect("a folder");
    let paths = items.map(|item| item.expect("an item").path());
    paths
        .filter(|path| path.extension().is_some_and(|ending| ending == "journal"))
        .collect()
}

fn session() -> SessionId {
    SessionId::named("a")
}

/// Applies these numbers of a session in one batch.
fn apply(gate: &Gate, session: SessionId, seqnos: std::ops::RangeInclusive<u64>) {
    let mut batch = gate.batch();
    for seqno in seqnos {
        let key = StreamKey(u128::from(seqno));
        let operation = StreamOperation::sequenced(session, Mark::new(0, seqno)).with_key(key);
        let GateVerdict::Apply(ticket) = batch.offer(&operation) else {
            panic!("{seqno} is next")
        };
        batch.applied(ticket);
    }
    batch.commit().expect("a disk");
}

fn mark(gate: &Gate) -> Mark {
    gate.progress(Tenant::default(), session()).mark
}

fn knows(gate: &Gate, key: u128) -> bool {
    let mut batch = gate.batch();
    matches!(
        batch.offer(&StreamOperation::keyed(StreamKey(key))),
        GateVerdict::Duplicate
    )
}

fn change(path: &Path, at: u64, bytes: &[u8]) {
    let mut file = OpenOptions::new().write(true).open(path).expect("a file");
    file.seek(SeekFrom::Start(at)).expect("a file");
    file.write_all(bytes).expect("a file");
}

#[test]
fn marks_keys_fences_and_retirements_survive_a_restart() {
    let folder = Folder::new("restart");
    let (gate, gone) = (folder.open(), SessionId::named("gone"));
    apply(&gate, session(), 1..=5);
    let mut batch = gate.batch();
    let GateVerdict::Apply(ticket) =
        batch.offer(&StreamOperation::sequenced(gone, Mark::new(0, 1)))
    else {
        panic!("it is new")
    };
    batch.applied(ticket);
    batch.commit().unwrap();
    gate.retire(Tenant::default(), gone).unwrap();
    gate.fence(Tenant::default(), session(), Epoch(4)).unwrap();
    let before = gate.snapshot();
    drop(gate);
    let gate = folder.open();
    assert_eq!(gate.snapshot(), before);
    assert_eq!(gate.progress(Tenant::default(), session()).fence, Epoch(4));
    assert_eq!(gate.progress(Tenant::default(), gone).mark, Mark::default());
    assert!(knows(&gate, 5) && !knows(&gate, 6));
}

#[test]
fn a_tail_torn_at_any_byte_loses_only_what_was_torn() {
    let folder = Folder::new("torn");
    apply(&folder.open(), session(), 1..=3);
    let whole = std::fs::read(folder.file()).unwrap();
    // The head, then three frames.
    assert_eq!(whole.len() as u64, 4 * FRAME);
    for length in (FRAME..=4 * FRAME).rev() {
        std::fs::write(folder.file(), &whole[..usize::try_from(length).unwrap()]).unwrap();
        let gate = folder.open();
        let left = length / FRAME - 1;
        assert_eq!(mark(&gate), Mark::new(0, left), "cut to {length} bytes");
        // And what comes next is written in the right place.
        apply(&gate, session(), left + 1..=left + 1);
        drop(gate);
        assert_eq!(mark(&folder.open()), Mark::new(0, left + 1));
    }
}

#[test]
fn tail_with_pages_out_of_order_is_torn() {
    let folder = Folder::new("order");
    let gate = folder.open();
    apply(&gate, session(), 1..=2);
    // One batch, brought to disk together: the machine dies when its last frames are there, and its
    // first are not.
    apply(&gate, session(), 3..=6);
    drop(gate);
    change(&folder.file(), 3 * FRAME, &[0; 100]);
    let gate = folder.open();
    assert_eq!(mark(&gate), Mark::new(0, 2));
}

#[test]
fn what_was_on_disk_and_is_changed_is_refused_and_left_alone() {
    let folder = Folder::new("damage");
    let gate = folder.open();
    for seqno in 1..=5 {
        apply(&gate, session(), seqno..=seqno);
    }
    drop(gate);
    change(&folder.file(), 2 * FRAME + 30, &[0xff]);
    let before = std::fs::read(folder.file()).unwrap();
    for _ in 0..2 {
        let error = folder.try_open().expect_err("it is damaged");
        assert!(
            matches!(error, JournalError::Damaged { frame: 2 }),
            "{error}"
        );
    }
    assert_eq!(std::fs::read(folder.file()).unwrap(), before);
}

#[test]
fn two_processes_cannot_have_one_journal() {
    let folder = Folder::new("lock");
    let gate = folder.open();
    assert!(matches!(folder.try_open(), Err(JournalError::InUse)));
    drop(gate);
    folder.open();
}

#[test]
fn a_journal_is_rewritten_before_it_is_long_and_loses_nothing() {
    let folder = Folder::new("long");
    let limits = GateLimits::default().with_window(1_000).with_shards(1);
    let open = || Gate::open(&folder.0, limits, Fsync::Never).expect("a journal");
    let mut gate = open();
    let mut longest = 0;
    for round in 0..100 {
        apply(&gate, session(), round * 1_000 + 1..=(round + 1) * 1_000);
        longest = longest.max(folder.file().metadata().unwrap().len());
        if round % 10 == 9 {
            let before = gate.snapshot();
            drop(gate);
            gate = open();
            assert_eq!(gate.snapshot(), before);
        }
    }
    // 100,000 entries were written. The bound: a snapshot, 10,000 entries, and the batch that went
    // past them.
    assert!(longest <= (1 + 1_001 + 10_000 + 1_000) * FRAME, "{longest}");
    assert_eq!(mark(&gate), Mark::new(0, 100_000));
}

#[test]
fn a_process_that_dies_while_it_rewrites_leaves_the_old_or_the_new() {
    let folder = Folder::new("rewrite");
    apply(&folder.open(), session(), 1..=3);
    // Half of a new file, without its name.
    let mut half = Vec::new();
    std::fs::File::open(folder.file())
        .unwrap()
        .take(100)
        .read_to_end(&mut half)
        .unwrap();
    std::fs::write(folder.0.join("new"), &half).unwrap();
    assert_eq!(mark(&folder.open()), Mark::new(0, 3));
    assert!(!folder.0.join("new").exists());
    // The new file has its name, and the old one is still there.
    let old = folder.file();
    let copy = std::fs::read(&old).unwrap();
    let limits = GateLimits::default().with_window(1_000).with_shards(1);
    let gate = Gate::open(&folder.0, limits, Fsync::Never).unwrap();
    apply(&gate, session(), 4..=20_000);
    drop(gate);
    assert_ne!(folder.file(), old);
    std::fs::write(&old, copy).unwrap();
    assert_eq!(mark(&folder.open()), Mark::new(0, 20_000));
    assert!(!old.exists());
    // A snapshot was on disk before it had its name.
    change(&folder.file(), 5 * FRAME, &[0xff]);
    assert!(matches!(
        folder.try_open(),
        Err(JournalError::Damaged { frame: 5 })
    ));
}

#[test]
fn failed_write_closes_the_gate_until_it_is_reopened() {
    let folder = Folder::new("failed");
    let gate = folder.open();
    apply(&gate, session(), 1..=10_000);
    // In the place of the new file, which therefore can't be made.
    let place = folder.0.join("new");
    std::fs::create_dir(&place).unwrap();
    let next = StreamOperation::sequenced(session(), Mark::new(0, 10_001));
    let mut batch = gate.batch();
    let GateVerdict::Apply(ticket) = batch.offer(&next) else {
        panic!("it is next")
    };
    batch.applied(ticket);
    let failed = batch.commit().expect_err("it can't be written");
    assert!(matches!(failed, JournalError::Io(_)), "{failed}");
    // Delivered again, as it was not acknowledged: its effect must not happen each time.
    for seqno in [10_001, 10_002] {
        let mut batch = gate.batch();
        let again = batch.offer(&StreamOperation::sequenced(session(), Mark::new(0, seqno)));
        assert!(matches!(again, GateVerdict::Busy), "{again:?}");
        // Whoever only ever looks at commits is told as well.
        assert!(matches!(batch.commit(), Err(JournalError::Poisoned)));
    }
    std::fs::remove_dir(&place).unwrap();
    drop(gate);
    apply(&folder.open(), session(), 10_002..=10_002);
}

#[test]
fn commits_of_many_threads_are_all_there_again() {
    let folder = Folder::new("threads");
    let gate = folder.open();
    let session = |n: u64| SessionId::named(&n.to_string());
    std::thread::scope(|scope| {
        for n in 0..4 {
            let gate = &gate;
            scope.spawn(move || {
                for seqno in 1..=50 {
                    let operation = StreamOperation::sequenced(session(n), Mark::new(0, seqno));
                    let mut batch = gate.batch();
                    let GateVerdict::Apply(ticket) = batch.offer(&operation) else {
                        panic!("it is next")
                    };
                    batch.applied(ticket);
                    batch.commit().unwrap();
                }
            });
        }
    });
    drop(gate);
    let gate = folder.open();
    for n in 0..4 {
        assert_eq!(
            gate.progress(Tenant::default(), session(n)).mark,
            Mark::new(0, 50)
        );
    }
}
