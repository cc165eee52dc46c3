//! The portable program: linked by zig against an old glibc, so that it runs on distributions of
//! many years.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::exec;
use crate::services::{folder, for_python, install};
use crate::workspace::Workspace;

/// The linker, and cargo's way to use it.
const TOOLS: &str = "ziglang==0.17.0\ncargo-zigbuild==0.24.0\n";

const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Rust's own standard library asks for this glibc; distributions have it since 2012.
const GLIBC: &str = "2.17";

/// What the program may weigh. Every package carries it, and people wait for the download.
const MOST_BYTES: u64 = 40_000_000;

/// Builds the program with the `dist` profile, and checks that it may be handed out.
pub(super) fn portable(workspace: &Workspace) -> Result<PathBuf> {
    let tools = folder(&workspace.path("target/dist-tools"), "zig", TOOLS);
    install(&tools, |beside| {
        println!("installing the linker");
        for_python(beside, TOOLS)
    })?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = vec![tools.join("bin")];
    folders.extend(std::env::split_paths(&path));
    let mut command = exec::cargo();
    command
        .env("PATH", std::env::join_paths(folders)?)
        .env("CARGO_TARGET_DIR", workspace.path("target"))
        .args(["zigbuild", "--locked", "--profile", "dist"])
        .args(["--package", "semel-cli", "--target"])
        .arg(format!("{TARGET}.{GLIBC}"));
    exec::run(command.current_dir(workspace.root()))?;
    let program = workspace.path(format!("target/{TARGET}/dist/semel"));
    may_be_handed_out(&oldest_glibc(&program)?, std::fs::metadata(&program)?.len())?;
    Ok(program)
}

/// Whether a program that needs this glibc and has this size runs where it is promised to, and is
/// small enough.
fn may_be_handed_out(needs: &str, bytes: u64) -> Result<()> {
    ensure!(
        version(needs) <= version(GLIBC),
        "the program needs glibc {}, and must run with {GLIBC}",
        needs.replace('_', ".")
    );
    ensure!(
        bytes <= MOST_BYTES,
        "the program has {bytes} bytes, and at most {MOST_BYTES} are allowed"
    );
    Ok(())
}

/// The newest version of glibc's symbols that a program uses: the oldest glibc that it runs on. As
/// in `2_17`.
pub(super) fn oldest_glibc(program: &Path) -> Result<String> {
    let symbols = exec::capture(Command::new("objdump").arg("-T").arg(program))
        .context("needs objdump (Debian: binutils)")?;
    newest_symbol(&symbols)
        .context("the program uses no symbol of glibc, so it is not what is packed here")
}

/// The newest version in the output of `objdump -T`.
fn newest_symbol(symbols: &str) -> Option<String> {
    let versions = symbols.split("GLIBC_").skip(1).filter_map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.');
        rest.get(..end.unwrap_or(rest.len()))
    });
    let versions = versions.filter(|text| !text.is_empty());
    let newest = versions.max_by_key(|text| version(text));
    newest.map(|text| text.replace('.', "_"))
}

/// `2.17` or `2_17` as numbers.
fn version(text: &str) -> Vec<u32> {
    let parts = text.split(['.', '_']);
    parts.filter_map(|part| part.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_symbol_counts_by_number() {
        let symbols = "0000 DF *UND* 0000 (GLIBC_2.2.5) free\n\
                       0000 DF *UND* 0000 (GLIBC_2.17) clock_gettime\n\
                       0000 DF *UND* 0000 (GLIBC_2.9) pipe2\n\
                       0000 DO *UND* 0000 (GLIBC_PRIVATE) _rtld_global\n";
        assert_eq!(newest_symbol(symbols).as_deref(), Some("2_17"));
        assert_eq!(newest_symbol("no symbols"), None);
    }

    #[test]
    fn what_is_too_new_or_too_large_is_refused() {
        assert!(may_be_handed_out("2_17", MOST_BYTES).is_ok());
        assert!(may_be_handed_out("2_2_5", 1).is_ok());
        let error = may_be_handed_out("2_28", 1).unwrap_err().to_string();
        assert!(error.contains("needs glibc 2.28"), "{error}");
        let error = may_be_handed_out("2_17", MOST_BYTES + 1).unwrap_err();
        assert!(error.to_string().contains("40000001 bytes"), "{error}");
    }
}
