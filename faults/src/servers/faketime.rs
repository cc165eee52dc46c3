//! A fake clock for a server: a file that the faketime library reads.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use semel_testkit::private::new_folder;

use super::Shared;
use crate::clock::{ClockJump, pass, tick};
use crate::kinds::Kind;
use crate::report::LeftOut;

/// A margin for the library's cache of the time.
const SETTLES: Duration = Duration::from_millis(2_500);
const HOUR: i64 = 3600;

/// The fake clock of a server.
pub(super) struct FakeTime {
    library: PathBuf,
    folder: PathBuf,
    offset: i64,
}

impl FakeTime {
    /// Creates a clock; `None` if the library is not installed.
    pub(super) fn new() -> Result<Option<Self>> {
        let Some(library) = library() else {
            println!("no libfaketime: no store's clock is set, and no worker's");
            return Ok(None);
        };
        let this = Self {
            library,
            folder: new_folder("clock"),
            offset: 0,
        };
        this.write()?;
        Ok(Some(this))
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The environment variables of the server.
    pub(super) fn environment(&self) -> [(&'static str, String); 4] {
        [
            ("LD_PRELOAD", self.library.display().to_string()),
            (
                "FAKETIME_TIMESTAMP_FILE",
                self.folder.join("offset").display().to_string(),
            ),
            ("FAKETIME_CACHE_DURATION", "1".to_owned()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
        ]
    }

    /// The same for several processes with one clock: each reads it every time, so that a change
    /// applies to all at once.
    pub(super) fn shared_environment(&self) -> Vec<(&'static str, String)> {
        let asked_once = |name: &str| name == "FAKETIME_CACHE_DURATION";
        let environment = self.environment().into_iter();
        let mut environment: Vec<_> = environment.filter(|(name, _)| !asked_once(name)).collect();
        environment.push(("FAKETIME_NO_CACHE", "1".to_owned()));
        environment
    }

    /// Replaces the file atomically, because a server reads it at any moment.
    fn write(&self) -> Result<()> {
        let beside = self.folder.join("next");
        std::fs::write(&beside, format!("{:+}s\n", self.offset))?;
        Ok(std::fs::rename(beside, self.folder.join("offset"))?)
    }

    /// Whether the server's clock differs from the machine's. Without free file handles the library
    /// can't read the file, and reports the machine's time.
    pub(super) const fn is_off(&self) -> bool {
        self.offset != 0
    }

    /// Sets the clock an hour forward or back, at most one hour off. Returns whether it did.
    pub(super) async fn jump(&mut self, kind: Kind, windows: &Shared) -> Result<u64> {
        let by = if kind == Kind::ClockForward {
            HOUR
        } else {
            -HOUR
        };
        let to = (self.offset + by).clamp(-HOUR, HOUR);
        if to == self.offset {
            return Ok(0);
        }
        let from = tick();
        self.offset = to;
        self.write()?;
        pass(SETTLES).await;
        windows
            .lock()
            .jumps
            .push(ClockJump::of_seconds(from, tick(), by));
        Ok(1)
    }
}

impl Drop for FakeTime {
    fn drop(&mut self) {
        // Leftover files do no harm.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The path of the library, if it is installed.
pub(super) fn library() -> Option<PathBuf> {
    let told = std::env::var_os("SEMEL_TEST_FAKETIME").map(PathBuf::from);
    let found = ["x86_64-linux-gnu", "aarch64-linux-gnu"]
        .map(|machine| PathBuf::from(format!("/usr/lib/{machine}/faketime/libfaketime.so.1")));
    told.into_iter().chain(found).find(|path| path.is_file())
}

/// The faults that need the library.
pub(super) fn left_out(has_clock: bool) -> Vec<LeftOut> {
    let kinds = [Kind::ClockForward, Kind::ClockBack];
    LeftOut::unless(has_clock, &kinds, "libfaketime is not installed")
}
