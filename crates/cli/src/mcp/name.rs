//! The default name of a server: the program or the host, and a digest that tells servers apart.
//!
//! The name is part of every scope, so logs, metrics and records show it. It must not reveal a
//! secret: of a command it shows the program's file name, and of a URL the host. `--name` sets
//! another name.

use std::ffi::OsString;
use std::path::Path;

use semel::core::{Fingerprint, FingerprintBuilder};

/// The longest program or host name that is shown.
const MAX_SHOWN_CHARS: usize = 32;

/// The name of a server that `words` start in `folder`.
pub(super) fn for_command(words: &[OsString], folder: &Path) -> String {
    let digest = digest_of("child").part(folder.as_os_str().as_encoded_bytes());
    let digest = words
        .iter()
        .fold(digest, |digest, word| digest.part(word.as_encoded_bytes()));
    let program = words
        .first()
        .and_then(|program| Path::new(program).file_name());
    let program = program.unwrap_or_default().to_string_lossy();
    join(&program, digest)
}

/// The name of a server at `url` that gets these `headers`.
pub(super) fn for_url(url: &str, headers: &[String]) -> String {
    let mut headers: Vec<(String, &str)> = headers
        .iter()
        .map(|line| line.split_once(':').unwrap_or((line, "")))
        .map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim()))
        .collect();
    headers.sort();
    let digest = digest_of("upstream").part(url.as_bytes());
    let digest = headers.iter().fold(digest, |digest, (name, value)| {
        digest.part(name.as_bytes()).part(value.as_bytes())
    });
    // Only the host is shown, because paths may contain tokens.
    let url: Option<http::Uri> = url.parse().ok();
    let host = url.as_ref().and_then(http::Uri::host).unwrap_or_default();
    join(host, digest)
}

fn digest_of(kind: &str) -> FingerprintBuilder {
    Fingerprint::builder(&semel::Secret::none()).part(kind.as_bytes())
}

fn join(word: &str, digest: FingerprintBuilder) -> String {
    let digest = digest.finish();
    let [_, a, b, c, d, ..] = digest.as_bytes();
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let word: String = word
        .chars()
        .filter(is_plain)
        .take(MAX_SHOWN_CHARS)
        .collect();
    format!("{word}-{a:02x}{b:02x}{c:02x}{d:02x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name_of(command: &str) -> String {
        let words: Vec<OsString> = command.split(' ').map(OsString::from).collect();
        for_command(&words, Path::new("/"))
    }

    #[test]
    fn name_begins_with_the_program() {
        for (command, program) in [
            ("npx -y some-mcp-server", "npx-"),
            ("/usr/bin/python3.12 -u /srv/server.py", "python3.12-"),
            ("docker run -i --rm ghcr.io/vendor/tools:1", "docker-"),
            ("/opt/vendor/tools-server --port 1", "tools-server-"),
            ("node.exe dist/index.js", "node.exe-"),
        ] {
            let name = name_of(command);
            assert!(name.starts_with(program), "{command}: {name}");
        }
        let long = name_of(&"a".repeat(100));
        assert!(long.len() <= 64, "{long}");
        assert!(for_command(&[], Path::new("/")).starts_with('-'));
    }

    #[test]
    fn name_reveals_no_secret() {
        for command in [
            "npx -y tools sk_secret",
            "node run sk_secret",
            "npx -y tools --api-key sk_secret",
            "npx --api-key sk_secret tools",
            "npx --unknown tools sk_secret",
            "npx https://user:sk_secret@host/x",
            "npx user:sk_secret@host",
            "uvx git+https://sk_secret@host/x",
            "python -c sk_secret",
            "python -W ignore server.py sk_secret",
            "node --some-flag server.js sk_secret",
            "docker run -e TOKEN=sk_secret image",
            "docker run --env TOKEN=sk_secret image sk_secret",
            "docker run --some-flag image sk_secret",
            "env TOKEN=sk_secret tools sk_secret",
            "env -S TOKEN=sk_secret",
            "sh -c sk_secret",
            "tools sk_secret",
            "tools --token sk_secret",
        ] {
            let name = name_of(command);
            assert!(!name.contains("secret"), "{command}: {name}");
        }
        for url in [
            "https://host/s/sk_secret/mcp",
            "https://host/sk_secret",
            "https://host/mcp?key=sk_secret",
            "https://user:sk_secret@host/mcp",
        ] {
            let name = for_url(url, &["Authorization: Bearer sk_secret".to_owned()]);
            assert!(name.starts_with("host-"), "{name}");
        }
        assert!(for_url("no URL", &[]).starts_with('-'));
    }

    #[test]
    fn folder_and_arguments_change_the_name() {
        let name = |words: &[&str], folder: &str| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            for_command(&words, Path::new(folder))
        };
        let one = name(&["python", "server.py"], "/a");
        assert_eq!(one, name(&["python", "server.py"], "/a"));
        for other in [
            name(&["python", "server.py"], "/b"),
            name(&["python", "server.py", "more"], "/a"),
            name(&["python", "server.py more"], "/a"),
        ] {
            assert_ne!(one, other);
            assert!(other.starts_with("python-"), "{other}");
        }
    }

    #[test]
    fn headers_change_the_name() {
        let name = |headers: &[&str]| {
            let headers: Vec<String> = headers.iter().map(|&line| line.to_owned()).collect();
            for_url("https://host/mcp", &headers)
        };
        let ann = name(&["Authorization: Bearer ann", "X-Team: 1"]);
        assert_eq!(ann, name(&["x-team:1", "authorization:  Bearer ann"]));
        for other in [
            name(&[]),
            name(&["Authorization: Bearer bob", "X-Team: 1"]),
            name(&["Authorization: Bearer ann"]),
        ] {
            assert_ne!(ann, other);
        }
        assert_ne!(name(&[]), for_url("https://host/other", &[]));
    }
}
