//! Running other programs: to the end, with their output captured, or within a time limit.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::time::{Stopwatch, pause};

/// Folders that hold servers but are often missing from the `PATH` of a user who isn't root.
const SYSTEM_FOLDERS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// How a command reads on a terminal.
#[must_use]
pub fn shown(command: &Command) -> String {
    let program = PathBuf::from(command.get_program());
    let mut text = program
        .file_name()
        .map_or_else(String::new, |n| n.to_string_lossy().into());
    for argument in command.get_args() {
        text.push(' ');
        text.push_str(&argument.to_string_lossy());
    }
    text
}

/// Runs to the end and returns what it printed; an exit code other than 0 is an error that quotes
/// the end of its error output.
///
/// # Errors
/// Where it can't be started, or fails.
pub fn capture(command: &mut Command) -> Result<String> {
    let text = shown(command);
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start `{text}`"))?;
    answer(&text, &output)
}

/// Like [`capture`], for a program that may hang: it is ended after `limit`.
///
/// # Errors
/// Where it can't be started, fails, or takes longer.
pub fn capture_within(command: &mut Command, limit: Duration) -> Result<String> {
    let text = shown(command);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start `{text}`"))?;
    // Both pipes are drained while the child runs: a full pipe would stop it for ever.
    let out = drain(child.stdout.take());
    let err = drain(child.stderr.take());
    let watch = Stopwatch::start();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if watch.elapsed() >= limit {
            child.kill()?;
            child.wait()?;
            bail!("`{text}` gave no answer in {} s", limit.as_secs());
        }
        pause(Duration::from_millis(10));
    };
    let joined = |handle: std::thread::JoinHandle<Vec<u8>>| handle.join().unwrap_or_default();
    answer(
        &text,
        &Output {
            status,
            stdout: joined(out),
            stderr: joined(err),
        },
    )
}

fn drain<R: std::io::Read + Send + 'static>(pipe: Option<R>) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // A pipe that breaks ends the text early; the exit status tells the rest.
            let _ = pipe.read_to_end(&mut bytes);
        }
        bytes
    })
}

fn answer(text: &str, output: &Output) -> Result<String> {
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(stdout);
    }
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let said = if stderr.trim().is_empty() {
        &stdout
    } else {
        &stderr
    };
    bail!(
        "`{text}` ended with {}: {}",
        output.status,
        last_lines(said, 5)
    )
}

/// The last `count` lines of a text.
#[must_use]
pub fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

/// The full path of a program, looked for in `PATH` and in the system folders.
pub fn find_program(name: impl AsRef<OsStr>) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(SYSTEM_FOLDERS.iter().map(PathBuf::from))
        .map(|folder| folder.join(name.as_ref()))
        .find(|candidate| candidate.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_program_is_quoted() {
        let error = capture(Command::new("sh").args(["-c", "echo no such key >&2; exit 3"]));
        let error = error.unwrap_err().to_string();
        assert!(error.contains("no such key"), "{error}");
        assert!(error.contains('3'), "{error}");
    }

    #[test]
    fn a_hanging_program_is_ended() {
        let answer = capture_within(Command::new("sleep").arg("60"), Duration::from_millis(50));
        assert!(answer.unwrap_err().to_string().contains("gave no answer"));
    }

    #[test]
    fn more_output_than_a_pipe_holds_arrives_whole() {
        let text = capture_within(
            Command::new("sh").args(["-c", "head -c 300000 /dev/zero | tr '\\0' x"]),
            Duration::from_secs(30),
        );
        assert_eq!(text.unwrap().len(), 300_000);
    }

    #[test]
    fn the_last_lines_of_a_short_text_are_all_of_it() {
        assert_eq!(last_lines("a\nb\n", 5), "a\nb");
        assert_eq!(last_lines("a\nb\nc\n", 2), "b\nc");
    }
}
