//! The folder of the store and the settings.
//!
//! It is removed at the end. A process that is killed can't do that, so the next one does: a folder
//! whose lock nobody holds has no process any more.

use std::fs::{DirBuilder, File};
use std::io;
use std::path::{Path, PathBuf};

use semel::core::Entropy;

const PREFIX: &str = "semel-dev-";
const LOCK: &str = "lock";

/// A folder of one's own, removed when it is dropped.
pub(super) struct Folder {
    path: PathBuf,
    /// Held as long as the process lives, however it ends.
    _lock: File,
}

impl Folder {
    /// Makes a folder in `parent`, and removes those of processes that were killed.
    pub(super) fn new(parent: &Path, entropy: &dyn Entropy) -> io::Result<Self> {
        remove_stale(parent);
        let id = format!("{:032x}", entropy.next_u128());
        // It gets its name when it is locked: before that, it would look like one that was left.
        let unnamed = parent.join(format!(".{PREFIX}{id}"));
        let mut builder = DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&unnamed)?;
        let lock = File::create_new(unnamed.join(LOCK))?;
        lock.lock()?;
        let path = parent.join(format!("{PREFIX}{id}"));
        std::fs::rename(&unnamed, &path)?;
        Ok(Self { path, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Left-over files in the temporary folder are no reason to fail.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Removes the folders whose process is gone. What can't be removed stays: this is no reason to
/// fail.
fn remove_stale(parent: &Path) {
    let Ok(entries) = std::fs::read_dir(parent) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let is_named = name.to_str().is_some_and(is_name);
        if is_named && is_ours(&entry.path()) && is_left(&entry.path()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

fn is_name(name: &str) -> bool {
    let id = name.strip_prefix(PREFIX);
    id.is_some_and(|id| id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Whether it is a folder of this user, and not a link to one.
fn is_ours(path: &Path) -> bool {
    let Ok(about) = std::fs::symlink_metadata(path) else {
        return false;
    };
    #[cfg(unix)]
    let is_own = std::os::unix::fs::MetadataExt::uid(&about) == rustix::process::geteuid().as_raw();
    #[cfg(not(unix))]
    let is_own = true;
    about.is_dir() && is_own
}

/// Whether nobody holds the lock. A folder without one is somebody else's.
fn is_left(path: &Path) -> bool {
    let lock = File::open(path.join(LOCK));
    lock.is_ok_and(|lock| lock.try_lock().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts, so that every folder has a name of its own.
    struct Counter(std::sync::atomic::AtomicU64);

    impl Entropy for Counter {
        fn next_u128(&self) -> u128 {
            let next = self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            u128::from(next)
        }
    }

    #[test]
    fn a_folder_is_removed_once_its_process_is_gone_and_no_other() {
        let parent = std::env::temp_dir().join(format!("semel-folders-{}", std::process::id()));
        std::fs::create_dir(&parent).expect("a folder");
        let names = Counter(0.into());
        let running = Folder::new(&parent, &names).expect("a folder");
        let killed = parent.join(format!("{PREFIX}{:032x}", 77));
        let unlocked = parent.join(format!("{PREFIX}{:032x}", 78));
        let other = parent.join("semel-dev-notes");
        for folder in [&killed, &unlocked, &other] {
            std::fs::create_dir(folder).expect("a folder");
        }
        for folder in [&killed, &other] {
            File::create_new(folder.join(LOCK)).expect("a file");
        }
        #[cfg(unix)]
        let link = {
            let link = parent.join(format!("{PREFIX}{:032x}", 79));
            std::os::unix::fs::symlink(&other, &link).expect("a link");
            link
        };
        let next = Folder::new(&parent, &names).expect("a folder");
        assert!(running.path().exists() && next.path().exists());
        assert!(!killed.exists(), "nobody holds its lock");
        assert!(unlocked.exists() && other.exists(), "not ours to judge");
        #[cfg(unix)]
        assert!(
            link.exists() && other.join(LOCK).exists(),
            "links are not followed"
        );
        drop((running, next));
        assert_eq!(
            std::fs::read_dir(&parent).expect("a folder").count(),
            if cfg!(unix) { 3 } else { 2 }
        );
        std::fs::remove_dir_all(parent).expect("a folder of our own");
    }
}
