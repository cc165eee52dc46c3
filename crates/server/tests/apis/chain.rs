//! The hash chain of the trail's files: it survives restart, rotation and erasure, and detects
//! changes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use semel_server::audit::{
    ChainHead, Draft, FileConfig, FileSink, Trail, TrailConfig, VerificationBaseline, verify,
};
use semel_testkit::private::new_folder;

fn draft(kind: &'static str, actor: &str) -> Draft {
    Draft {
        kind,
        id: Some("ab".repeat(32)),
        actor: Some(actor.to_owned()),
        ..Draft::default()
    }
}

fn open(path: &Path, max_bytes: u64) -> Trail {
    let env = semel::tokio_env();
    let config = FileConfig {
        max_bytes,
        ..FileConfig::new(path)
    };
    let sink = FileSink::open(config, Arc::clone(&env.clock)).expect("a folder of our own");
    Trail::start(Arc::new(sink), TrailConfig::default(), env)
}

/// Creates a trail of `entries` in one file.
async fn written(folder: &str, entries: usize) -> PathBuf {
    let path = new_folder(folder).join("audit.jsonl");
    let trail = open(&path, 1 << 20);
    for number in 0..entries {
        let kind = ["idempotency.replay", "admin.reset"][number % 2];
        let recorded = trail.record(draft(kind, "ada")).await;
        recorded.expect("the file takes it");
    }
    path
}

fn problems(path: &Path) -> Vec<String> {
    let found = verify(path, &VerificationBaseline::default());
    found.expect("files that can be read").problems
}

/// Changes the lines of the trail, as with an editor.
fn edit(path: &Path, change: impl FnOnce(&mut Vec<String>)) {
    let text = std::fs::read_to_string(path).expect("the file");
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    change(&mut lines);
    std::fs::write(path, lines.join("\n") + "\n").expect("written");
}

#[tokio::test]
async fn chain_survives_restart_rotation_and_erasure() {
    let path = new_folder("chain").join("audit.jsonl");
    for _ in 0..3 {
        let trail = open(&path, 3_000);
        for number in 0..20 {
            let kind = ["idempotency.replay", "admin.reset"][number % 2];
            trail.record(draft(kind, "ada")).await.unwrap();
        }
        assert!(trail.erase("ada").await.unwrap() > 0);
        trail.flush().await;
    }
    let found = verify(&path, &VerificationBaseline::default()).unwrap();
    assert_eq!(found.problems, Vec::<String>::new());
    assert_eq!((found.entries - found.checkpoints, found.erased), (60, 30));
    assert!(found.checkpoints > 6, "{found:?}");
    // Entries of operators keep their name.
    let text = std::fs::read_to_string(&path).unwrap();
    let kept = text.lines().filter(|line| line.contains("admin.reset"));
    assert!(kept.clone().count() > 0 && kept.clone().all(|line| line.contains("ada")));
    // Old files may be removed, because each file begins with a checkpoint.
    let folder = path.parent().unwrap();
    let mut names: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    names.retain(|name| name.to_string_lossy().contains("jsonl.1"));
    names.sort();
    std::fs::remove_file(&names[0]).unwrap();
    assert_eq!(problems(&path), Vec::<String>::new());
    // Files in the middle must not be removed.
    std::fs::remove_file(&names[2]).unwrap();
    assert!(problems(&path)[0].contains("entries are missing"));
}

#[tokio::test]
async fn long_file_has_several_checkpoints() {
    let path = written("signed", 1_100).await;
    let found = verify(&path, &VerificationBaseline::default()).unwrap();
    assert_eq!((found.checkpoints, found.problems), (2, Vec::new()));
    assert!(found.unsigned < 1_000, "{}", found.unsigned);
}

#[tokio::test]
async fn every_manipulation_is_detected() {
    type Change = fn(&mut Vec<String>);
    let changes: [(&str, Change, &str); 7] = [
        (
            "changed",
            |lines| lines[3] = lines[3].replace("ada", "bob"),
            "was changed",
        ),
        (
            "removed",
            |lines| drop(lines.remove(3)),
            "entries are missing",
        ),
        (
            "added",
            |lines| lines.insert(3, lines[3].clone()),
            "entries are missing",
        ),
        ("swapped", |lines| lines.swap(3, 4), "entries are missing"),
        (
            "foreign",
            |lines| {
                let foreign = r#"{"event_id":"x","time":"t","type":"admin.reset"}"#;
                lines.insert(3, foreign.to_owned());
            },
            "no link",
        ),
        (
            "spaced",
            |lines| lines[3] = lines[3].replacen(':', ": ", 1),
            "was changed",
        ),
        (
            "beheaded",
            |lines| drop(lines.drain(..2)),
            "not a checkpoint",
        ),
    ];
    for (name, change, problem) in changes {
        let path = written(name, 6).await;
        assert_eq!(problems(&path), Vec::<String>::new(), "{name}");
        edit(&path, change);
        let found = problems(&path);
        assert!(
            found.iter().any(|told| told.contains(problem)),
            "{name}: {found:?}"
        );
    }
}

#[tokio::test]
async fn operator_names_cannot_be_erased() {
    let path = written("nameless", 2).await;
    // A digest instead of the name, as after an erasure, keeps the hash valid.
    let trail = open(&path, 1 << 20);
    assert_eq!(trail.erase("ada").await.unwrap(), 1);
    edit(&path, |lines| {
        let erased = lines
            .iter()
            .find(|line| line.contains(r#""erased":"#))
            .unwrap();
        assert!(erased.contains("idempotency.replay"));
        for line in lines.iter_mut() {
            *line = line.replace("idempotency.replay", "admin.reset");
        }
    });
    let found = problems(&path);
    assert!(!found.is_empty(), "{found:?}");
}

#[tokio::test]
async fn baseline_detects_truncation_and_foreign_signatures() {
    let path = written("cut", 4).await;
    let before = verify(&path, &VerificationBaseline::default()).unwrap();
    let (key, head): (_, ChainHead) = (before.key, before.head.unwrap().parse().unwrap());
    let expected = VerificationBaseline {
        key,
        head: Some(head),
    };
    assert_eq!(
        verify(&path, &expected).unwrap().problems,
        Vec::<String>::new()
    );
    edit(&path, |lines| drop(lines.pop()));
    assert_eq!(
        problems(&path),
        Vec::<String>::new(),
        "nothing in the files tells it"
    );
    let found = verify(&path, &expected).unwrap().problems;
    assert!(found[0].contains("not in the trail"), "{found:?}");
    // The trail is rewritten from the beginning with another key.
    let forged = written("forged", 4).await;
    let found = verify(&forged, &expected).unwrap().problems;
    assert!(found[0].contains("another key"), "{found:?}");
}

#[tokio::test]
async fn truncated_line_is_reported_but_no_manipulation() {
    let path = written("crashed", 3).await;
    let mut text = std::fs::read_to_string(&path).unwrap();
    text.push_str(r#"{"event_id":"x","ti"#);
    std::fs::write(&path, text).unwrap();
    open(&path, 1 << 20)
        .record(draft("admin.reset", "bob"))
        .await
        .unwrap();
    let found = verify(&path, &VerificationBaseline::default()).unwrap();
    assert_eq!((found.cut, found.problems), (1, Vec::new()));
}

#[tokio::test]
async fn two_writers_share_one_trail() {
    let path = new_folder("turns").join("audit.jsonl");
    let (one, other) = (open(&path, 3_000), open(&path, 3_000));
    for _ in 0..20 {
        let wrote = tokio::join!(
            one.record(draft("admin.reset", "ada")),
            other.record(draft("admin.reset", "bob")),
        );
        wrote.0.and(wrote.1).unwrap();
    }
    let found = verify(&path, &VerificationBaseline::default()).unwrap();
    assert_eq!(found.problems, Vec::<String>::new());
    assert_eq!(found.entries - found.checkpoints, 40);
}

#[cfg(unix)]
#[tokio::test]
async fn files_are_readable_by_their_owner_only() {
    use std::os::unix::fs::PermissionsExt as _;
    let path = written("modes", 3).await;
    for file in std::fs::read_dir(path.parent().unwrap()).unwrap() {
        let file = file.unwrap();
        let mode = file.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{:?}", file.file_name());
    }
}
