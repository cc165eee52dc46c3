//! A small disk that can be filled, where we may make one.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Result;
use semel_testkit::private::new_folder;

use crate::clock::pass;
use crate::kinds::Kind;
use crate::report::LeftOut;

/// Room for the records of a long run, and soon full.
pub(super) const SIZE: &str = "size=512m";

/// A folder, on a disk of its own if that can be.
pub(super) struct Disk {
    folder: PathBuf,
    is_small: bool,
}

impl Disk {
    /// A folder on a disk of this size, in words of the file system.
    pub(super) fn new(name: &str, size: &str) -> Self {
        let folder = new_folder(name);
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", size, "semel-faults"])
            .arg(&folder);
        let mounted = mount.stdout(Stdio::null()).stderr(Stdio::null()).status();
        let is_small = mounted.is_ok_and(|status| status.success());
        Self { folder, is_small }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether it can be filled.
    pub(super) const fn is_small(&self) -> bool {
        self.is_small
    }

    /// Writes until there is no room, and makes room again.
    pub(super) async fn fill(&self, for_time: Duration) -> Result<()> {
        let filler = self.folder.join("filler");
        let mut file = std::fs::File::create(&filler)?;
        let lot = vec![0_u8; 1 << 20];
        while file.write_all(&lot).is_ok() {}
        pass(for_time).await;
        Ok(std::fs::remove_file(filler)?)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.is_small {
            let _ = Command::new("umount").arg("-l").arg(&self.folder).status();
        }
        // Left-over files are no reason to fail.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// What can't be tried without a small disk.
pub(super) fn left_out(is_small: bool) -> Vec<LeftOut> {
    let why = "no small disk can be mounted: needs root";
    LeftOut::unless(is_small, &[Kind::DiskFull], why)
}
