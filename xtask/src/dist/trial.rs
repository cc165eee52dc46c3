//! Installs each package in an empty place, without a compiler on the `PATH`, and uses the program
//! there.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use super::{Release, archive, wheel};
use crate::exec;

/// How long the demonstration may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// Tries every package. Returns a part of the name of each file that was tried.
pub(super) fn run(release: &Release) -> Result<Vec<&'static str>> {
    let place = release.empty("trial")?;
    tarball(release, &place).context("the tarball")?;
    debian(release, &place).context("the Debian package")?;
    python(release, &place).context("the Python wheel")?;
    npm(release, &place).context("the npm packages")?;
    installer(release, &place).context("the installer script")?;
    std::fs::remove_dir_all(&place)?;
    Ok(vec![
        ".tar.gz",
        ".deb",
        ".whl",
        ".tgz",
        "install.sh",
        "SHA256SUMS",
    ])
}

/// A command of somebody who has no Rust.
fn plain(program: impl AsRef<OsStr>, home: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("HOME", home)
        .current_dir(home);
    command
}

/// Whether the program says its version, and shows what it does.
fn try_program(release: &Release, program: &Path, home: &Path) -> Result<()> {
    let says = exec::capture(plain(program, home).arg("--version"))?;
    ensure!(
        says.trim() == format!("semel {}", release.version),
        "the program says {says:?}"
    );
    let shown = exec::capture_within(plain(program, home).arg("demo"), PATIENCE)?;
    ensure!(
        shown.contains("every order was charged once"),
        "the demonstration shows something else:\n{shown}"
    );
    Ok(())
}

fn tarball(release: &Release, place: &Path) -> Result<()> {
    let name = archive::name(release);
    let file = release.folder.join(format!("{name}.tar.gz"));
    exec::capture(plain("tar", place).arg("-xzf").arg(file))?;
    let tree = place.join(name);
    ensure!(
        tree.join("share/man/man1/semel.1").is_file(),
        "no manual page"
    );
    try_program(release, &tree.join("bin/semel"), place)
}

fn debian(release: &Release, place: &Path) -> Result<()> {
    let file = format!("semel_{}_amd64.deb", release.version);
    let file = release.folder.join(file);
    let tree = place.join("debian");
    exec::capture(
        plain("dpkg-deb", place)
            .arg("--extract")
            .args([&file, &tree]),
    )?;
    for wanted in [
        "usr/lib/systemd/system/semel.service",
        "etc/semel/semel.toml",
    ] {
        ensure!(tree.join(wanted).is_file(), "no {wanted}");
    }
    try_program(release, &tree.join("usr/bin/semel"), place)
}

fn python(release: &Release, place: &Path) -> Result<()> {
    let environment = place.join("python");
    // Of the interpreter that is there: it may be another than the system's.
    exec::capture(
        Command::new("python3")
            .args(["-m", "venv"])
            .arg(&environment),
    )?;
    let wheel = release.folder.join(wheel::name(release));
    let mut pip = plain(environment.join("bin/python"), place);
    pip.args(["-m", "pip", "install", "--quiet", "--no-index"]);
    exec::capture(pip.arg("--disable-pip-version-check").arg(wheel))?;
    try_program(release, &environment.join("bin/semel"), place)
}

fn npm(release: &Release, place: &Path) -> Result<()> {
    let folder = place.join("npm");
    std::fs::create_dir_all(&folder)?;
    let version = &release.version;
    let npm = exec::find_program("npm").context("needs npm")?;
    let node = exec::find_program("node").context("needs node")?;
    let path = [
        node.parent(),
        Some(Path::new("/usr/bin")),
        Some(Path::new("/bin")),
    ];
    let path = std::env::join_paths(path.into_iter().flatten())?;
    let mut install = plain(npm, place);
    install
        .args(["install", "--offline", "--silent", "--no-audit"])
        .arg(
            release
                .folder
                .join(format!("semel-cli-linux-x64-{version}.tgz")),
        )
        .arg(release.folder.join(format!("semel-cli-{version}.tgz")));
    exec::capture(install.env("PATH", &path).current_dir(&folder))?;
    let launcher = folder.join("node_modules/.bin/semel");
    let says = exec::capture(plain(&launcher, place).arg("--version").env("PATH", &path))?;
    ensure!(
        says.trim() == format!("semel {version}"),
        "the program says {says:?}"
    );
    let ended = plain(&launcher, place)
        .arg("no-such-command")
        .env("PATH", &path)
        .output()?;
    ensure!(
        ended.status.code() == Some(2),
        "the launcher ends with {}",
        ended.status
    );
    let program = folder.join("node_modules/@semel/cli-linux-x64/bin/semel");
    try_program(release, &program, place)
}

fn installer(release: &Release, place: &Path) -> Result<()> {
    let (good, to) = (place.join("release"), place.join("local"));
    std::fs::create_dir_all(&good)?;
    let archive = format!("{}.tar.gz", archive::name(release));
    for name in [archive.as_str(), "SHA256SUMS"] {
        std::fs::copy(release.folder.join(name), good.join(name))?;
    }
    let script = release.folder.join("install.sh");
    let install = |to: &Path| {
        let mut command = plain("sh", place);
        command.arg(&script).arg("--from");
        command
            .arg(format!("file://{}", good.display()))
            .arg("--to")
            .arg(to);
        command
    };
    exec::capture(&mut install(&to))?;
    try_program(release, &to.join("bin/semel"), place)?;
    // Somebody has changed the download: nothing may be installed.
    let mut bytes = std::fs::read(good.join(&archive))?;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(good.join(&archive), bytes)?;
    let nowhere = place.join("nowhere");
    if install(&nowhere).output()?.status.success() || nowhere.exists() {
        bail!("it installs a download whose checksum is wrong");
    }
    Ok(())
}
