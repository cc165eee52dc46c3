//! The name of a server that was given none: a word for people, and a digest of all that tells it from others.
//!
//! The name is a part of every scope, so logs, metrics and records show it. The word must not be a secret: it is one that
//! is known to name a program or a host, or it is none.

use std::ffi::OsString;
use std::path::Path;

use semel::core::{Fingerprint, FingerprintBuilder};

/// The longest word that is shown.
const MOST_SHOWN: usize = 32;

/// The name of a server that is started by `words` in `folder`.
pub(super) fn of_command(words: &[OsString], folder: &Path) -> String {
    let digest = begun("child").part(folder.as_os_str().as_encoded_bytes());
    let digest = words
        .iter()
        .fold(digest, |digest, word| digest.part(word.as_encoded_bytes()));
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    named(shown(&words), digest)
}

/// The name of a server at `url`, asked with `headers`.
pub(super) fn of_url(url: &str, headers: &[String]) -> String {
    let mut headers: Vec<(String, &str)> = headers
        .iter()
        .map(|line| line.split_once(':').unwrap_or((line, "")))
        .map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim()))
        .collect();
    headers.sort();
    let digest = begun("upstream").part(url.as_bytes());
    let digest = headers.iter().fold(digest, |digest, (name, value)| {
        digest.part(name.as_bytes()).part(value.as_bytes())
    });
    // The host alone: there are servers with tokens in their paths.
    let url: Option<http::Uri> = url.parse().ok();
    let host = url.as_ref().and_then(http::Uri::host).unwrap_or_default();
    named(host, digest)
}

fn begun(kind: &str) -> FingerprintBuilder {
    Fingerprint::builder(&semel::Secret::none()).part(kind.as_bytes())
}

fn named(word: &str, digest: FingerprintBuilder) -> String {
    let digest = digest.finish();
    let [_, a, b, c, d, ..] = digest.as_bytes();
    let is_fit = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let word: String = word.chars().filter(is_fit).take(MOST_SHOWN).collect();
    format!("{word}-{a:02x}{b:02x}{c:02x}{d:02x}")
}

/// What a program that starts another is told before the other's name. Whatever isn't listed may be followed by anything,
/// a secret too: then the word is the program's own name.
struct Launcher {
    programs: &'static [&'static str],
    /// Words that stand alone.
    alone: &'static [&'static str],
    /// Words that the next one belongs to.
    valued: &'static [&'static str],
}

const LAUNCHERS: [Launcher; 8] = [
    Launcher {
        programs: &["npx", "bunx", "pnpx"],
        alone: &["--", "-y", "--yes", "-q", "--quiet", "--bun"],
        valued: &["-p", "--package"],
    },
    Launcher {
        programs: &["npm", "pnpm", "yarn", "bun"],
        alone: &[
            "exec", "x", "dlx", "run", "--", "-y", "--yes", "-s", "--silent",
        ],
        valued: &["--package"],
    },
    Launcher {
        programs: &["uvx"],
        alone: &["-q", "--quiet", "--no-cache", "--isolated"],
        valued: &["--from", "--with", "--python"],
    },
    Launcher {
        programs: &["uv", "pipx", "poetry"],
        alone: &["tool", "run", "-q", "--quiet", "--no-cache"],
        valued: &["--from", "--with", "--python", "--directory", "--project"],
    },
    Launcher {
        programs: &["python", "py"],
        alone: &["-u", "-B", "-E", "-I", "-O", "-s", "-S", "-m"],
        valued: &["-W", "-X"],
    },
    Launcher {
        programs: &["node", "tsx", "ruby", "php", "java", "dotnet"],
        alone: &["--no-warnings", "--enable-source-maps", "-jar"],
        valued: &["-r", "--require", "--import", "--env-file", "-cp"],
    },
    Launcher {
        programs: &["docker", "podman", "deno"],
        alone: &[
            "run",
            "-i",
            "-t",
            "-it",
            "--rm",
            "--init",
            "-A",
            "--allow-all",
        ],
        valued: &[
            "-e",
            "--env",
            "--env-file",
            "-v",
            "--volume",
            "--mount",
            "--name",
            "--network",
            "-p",
            "--publish",
            "-u",
            "--user",
            "-w",
            "--workdir",
            "--platform",
            "--entrypoint",
        ],
    },
    Launcher {
        programs: &["env"],
        alone: &["-i"],
        valued: &["-u"],
    },
];

/// The word for people: what is started.
fn shown<'a>(words: &[&'a str]) -> &'a str {
    let Some((program, rest)) = words.split_first() else {
        return "";
    };
    let program = last_part(program);
    let found = LAUNCHERS.iter().find(|of| of.is_named(program));
    let Some(rest) = found.and_then(|launcher| launcher.started(rest)) else {
        return program;
    };
    match rest.split_first() {
        // What `env` starts may be a launcher itself.
        Some(_) if program == "env" => shown(rest),
        Some((word, _)) if is_name(word) => last_part(word),
        _ => program,
    }
}

impl Launcher {
    fn is_named(&self, program: &str) -> bool {
        // As in `python3.12` and `node.exe`.
        let plain = program.strip_suffix(".exe").unwrap_or(program);
        let plain = plain.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        self.programs.contains(&plain)
    }

    /// The words from the one on that names what is started; nothing where that can't be told.
    fn started<'a, 'b>(&self, mut words: &'b [&'a str]) -> Option<&'b [&'a str]> {
        while let Some((word, rest)) = words.split_first() {
            let is_valued = self.valued.contains(word);
            let is_alone = self.alone.contains(word)
                // A flag with its value in it, a variable for `env`.
                || (word.contains('=') && (word.starts_with('-') || self.programs == ["env"]));
            words = match (is_valued, is_alone) {
                (true, _) => rest.get(1..)?,
                (_, true) => rest,
                _ if word.starts_with('-') => return None,
                _ => return Some(words),
            };
        }
        None
    }
}

/// Whether a word is a package's, a file's or an image's name, and no address with credentials.
fn is_name(word: &str) -> bool {
    let is_address = word.contains("://") || (word.contains('@') && word.contains(':'));
    !is_address && !word.contains('=')
}

/// The last part of a path, or of a package's name, without a version.
fn last_part(word: &str) -> &str {
    let word = word.trim_end_matches(['/', '\\']);
    let last = word.rsplit(['/', '\\']).next().unwrap_or_default();
    let name = last.trim_start_matches('@');
    name.split(['@', ':']).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(command: &str) -> String {
        let words: Vec<&str> = command.split(' ').collect();
        shown(&words).to_owned()
    }

    #[test]
    fn the_word_is_what_is_started() {
        for (command, expected) in [
            ("npx -y some-mcp-server", "some-mcp-server"),
            ("npx -y @vendor/tools@1.2.0 /a/folder", "tools"),
            ("npx --package=a b", "b"),
            ("pnpm dlx tools --verbose", "tools"),
            ("npm exec -y -- tools", "tools"),
            ("uvx --from git+https://host/x tools", "tools"),
            ("uv run --directory /a server.py", "server.py"),
            ("pipx run tools", "tools"),
            ("/usr/bin/python3.12 -u /srv/server.py", "server.py"),
            ("python -m vendor.tools", "vendor.tools"),
            ("node.exe dist/index.js", "index.js"),
            (
                "docker run -i --rm -e TOKEN ghcr.io/vendor/tools:1",
                "tools",
            ),
            ("env A=1 B=2 npx -y tools", "tools"),
            ("/opt/vendor/tools-server --port 1", "tools-server"),
            (r"C:\tools\server.exe", "server.exe"),
        ] {
            assert_eq!(word(command), expected, "{command}");
        }
    }

    #[test]
    fn no_secret_of_the_command_is_shown() {
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
            let words: Vec<OsString> = command.split(' ').map(OsString::from).collect();
            let name = of_command(&words, Path::new("/"));
            assert!(!name.contains("secret"), "{command}: {name}");
        }
        for url in [
            "https://host/s/sk_secret/mcp",
            "https://host/sk_secret",
            "https://host/mcp?key=sk_secret",
            "https://user:sk_secret@host/mcp",
        ] {
            let name = of_url(url, &["Authorization: Bearer sk_secret".to_owned()]);
            assert!(name.starts_with("host-"), "{name}");
        }
        assert!(of_url("no URL", &[]).starts_with('-'));
    }

    #[test]
    fn folder_and_arguments_tell_processes_apart() {
        let name = |words: &[&str], folder: &str| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            of_command(&words, Path::new(folder))
        };
        let one = name(&["python", "server.py"], "/a");
        assert_eq!(one, name(&["python", "server.py"], "/a"));
        for other in [
            name(&["python", "server.py"], "/b"),
            name(&["python", "server.py", "more"], "/a"),
            name(&["python", "server.py more"], "/a"),
        ] {
            assert_ne!(one, other);
            assert!(other.starts_with("server.py"), "{other}");
        }
    }

    #[test]
    fn headers_tell_accounts_apart_however_they_are_written() {
        let name = |headers: &[&str]| {
            let headers: Vec<String> = headers.iter().map(|&line| line.to_owned()).collect();
            of_url("https://host/mcp", &headers)
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
        assert_ne!(name(&[]), of_url("https://host/other", &[]));
    }
}
