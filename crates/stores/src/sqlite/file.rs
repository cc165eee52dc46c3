//! The database file: created with access for its owner only, on a local disk, and checked to be
//! still the one opened.

use std::fs::{Metadata, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use semel_core::store::StoreResult;

use super::error::unfit;

/// Network file systems. The write-ahead log needs shared memory, which doesn't work across hosts.
const REMOTE: &[(u32, &str)] = &[
    (0x6969, "NFS"),
    (0xFF53_4D42, "CIFS"),
    (0xFE53_4D42, "SMB2"),
    (0x517B, "SMB"),
    (0x00C3_6400, "Ceph"),
    (0x0BD0_0BD0, "Lustre"),
    (0x0102_1997, "9p"),
    (0x4750_4653, "GPFS"),
    (0x0116_1970, "GFS2"),
];

/// Creates the file, with access for its owner only, unless it exists. SQLite gives its other files
/// the same permissions.
pub(super) fn prepare(path: &Path) -> StoreResult<()> {
    /// Closing a file drops all locks that this process has on it, including those of other
    /// connections. So no other thread may open a connection while this function has the file open.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _alone = ONE_AT_A_TIME.lock();
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    match made {
        Ok(file) => drop(file),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => {
            let said = format!(
                "{} can't be made: {error}; is its folder there, and writable?",
                path.display()
            );
            return Err(unfit(said));
        }
    }
    refuse_remote(path)
}

fn refuse_remote(path: &Path) -> StoreResult<()> {
    let Some(name) = remote(path) else {
        return Ok(());
    };
    Err(unfit(format!(
        "{} is on {name}, which hosts share: SQLite's write-ahead log works on a disk of this host only. Use a local \
         path, or postgres:// for several hosts",
        path.display()
    )))
}

/// The name of the file system, if it is one that hosts share.
fn remote(path: &Path) -> Option<&'static str> {
    let kind = rustix::fs::statfs(path).ok()?.f_type;
    // The field's type differs from platform to platform; the number has 32 bits on all of them.
    let kind = u32::try_from(kind & 0xFFFF_FFFF).ok()?;
    REMOTE
        .iter()
        .find(|(number, _)| *number == kind)
        .map(|(_, name)| *name)
}

/// The identity of a file, independent of its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileId {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl FileId {
    pub(super) fn new(path: &Path) -> StoreResult<Self> {
        let found = metadata(path)?;
        Ok(Self {
            path: path.to_owned(),
            device: found.dev(),
            inode: found.ino(),
        })
    }

    /// Fails if the file was removed or replaced: no other process would see its writes.
    pub(super) fn check_unchanged(&self) -> StoreResult<()> {
        match std::fs::metadata(&self.path) {
            Ok(found) if (found.dev(), found.ino()) == (self.device, self.inode) => Ok(()),
            _ => Err(unfit(format!(
                "{} was moved, removed or replaced while in use; put it back, or restart to begin with what is there \
                 now",
                self.path.display()
            ))),
        }
    }

    /// Whether others than its owner may read or write it, and its permissions as people write
    /// them.
    pub(super) fn permissions(&self) -> StoreResult<(bool, String)> {
        let mode = metadata(&self.path)?.mode() & 0o777;
        Ok((mode & 0o077 != 0, format!("{mode:03o}")))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

fn metadata(path: &Path) -> StoreResult<Metadata> {
    std::fs::metadata(path).map_err(|error| unfit(format!("{}: {error}", path.display())))
}
