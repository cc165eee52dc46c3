//! The file: made for its owner alone, on a disk of this host, and still the one that was opened.

use std::fs::{Metadata, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use semel_core::store::StoreResult;

use super::error::unfit;

/// File systems that other hosts share: no memory is shared across them, which the write-ahead log needs.
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

/// Makes the file, readable and writable by its owner alone, unless it is there. SQLite gives the files that it
/// makes beside it the same permissions.
pub(super) fn prepare(path: &Path) -> StoreResult<()> {
    /// To close a file is to drop every lock that this process has on it, those of another connection too. So no
    /// other thread may open a connection between here and the closing.
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

/// The name of the file system, where it is one that hosts share.
fn remote(path: &Path) -> Option<&'static str> {
    let kind = rustix::fs::statfs(path).ok()?.f_type;
    // The field's type differs from platform to platform; the number has 32 bits on all of them.
    let kind = u32::try_from(kind & 0xFFFF_FFFF).ok()?;
    REMOTE
        .iter()
        .find(|(number, _)| *number == kind)
        .map(|(_, name)| *name)
}

/// Which file it is, however it is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl Place {
    pub(super) fn of(path: &Path) -> StoreResult<Self> {
        let found = metadata(path)?;
        Ok(Self {
            path: path.to_owned(),
            device: found.dev(),
            inode: found.ino(),
        })
    }

    /// Refuses to write into a file that was removed or replaced: nobody else would ever see it.
    pub(super) fn still_there(&self) -> StoreResult<()> {
        match std::fs::metadata(&self.path) {
            Ok(found) if (found.dev(), found.ino()) == (self.device, self.inode) => Ok(()),
            _ => Err(unfit(format!(
                "{} was moved, removed or replaced while in use; put it back, or restart to begin with what is there \
                 now",
                self.path.display()
            ))),
        }
    }

    /// Whether others than its owner may read or write it, and its permissions as people write them.
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
