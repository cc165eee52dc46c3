//! [`FileConfig`]: the settings of the trail in files.

use std::path::PathBuf;
use std::time::Duration;

/// When entries are synchronized to the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SyncMode {
    /// After every batch, before it counts as written.
    #[default]
    EveryBatch,
    /// By the operating system. A crash of the machine may lose the last seconds, a crash of the
    /// process nothing.
    Never,
}

/// The settings of a [`FileSink`](super::FileSink).
#[derive(Clone, Debug)]
pub struct FileConfig {
    /// The current file. Full files are renamed with a timestamp.
    pub path: PathBuf,
    /// The maximum size of a file. Default: 64 MiB.
    pub max_bytes: u64,
    /// How long to keep full files. Default: 90 days.
    pub retention: Duration,
    /// When entries are synchronized to the disk.
    pub sync: SyncMode,
    /// The file of the signing key, which is created if needed. Default: `path` with the suffix
    /// `.key`.
    pub key_file: PathBuf,
}

impl FileConfig {
    /// The default settings for a file at `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let mut key_file = path.clone().into_os_string();
        key_file.push(".key");
        Self {
            path,
            key_file: key_file.into(),
            max_bytes: 64 * 1024 * 1024,
            retention: Duration::from_secs(90 * 24 * 60 * 60),
            sync: SyncMode::default(),
        }
    }
}
