//! The tutorials and how-to guides, followed to the letter in an empty folder: files are written,
//! shell blocks run in order, and their output is compared with the page.
//!
//! Ports and databases are the test's own. A `sleep` waits until the program of the page is ready,
//! because this machine may be slower than a reader's. Nothing else of the text is changed.

mod walks;

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use semel_testkit::private::{PostgresServer, RedisServer, free_port, new_folder};
use semel_tests::pages::{assert_shown, blocks, commands, root};
use semel_tests::program;

/// The conditions that a page waits for with `sleep`.
const SERVICE: &str = "curl -s -o ready.txt http://127.0.0.1:3000/";
const SIDECAR: &str = "curl -sf -o ready.txt http://127.0.0.1:8080/_semel/readyz";

/// A page, and what stands for a reader's machine.
struct Guide {
    page: &'static str,
    /// The conditions of each `sleep`, in order.
    waits: Vec<&'static str>,
    /// Texts of the page, and the texts of this machine.
    own: Vec<(&'static str, String)>,
    /// Commands that the page expects to have been run.
    before: String,
    /// Programs of this repository that are installed, besides `semel`.
    programs: Vec<&'static str>,
}

impl Guide {
    fn new(page: &'static str, waits: &[&'static str]) -> Self {
        Self {
            page,
            waits: waits.to_vec(),
            own: Vec::new(),
            before: String::new(),
            programs: Vec::new(),
        }
    }

    /// Runs all blocks and compares the output.
    fn follow(self) {
        let text = std::fs::read_to_string(root().join("docs").join(self.page)).expect("a page");
        let around = new_folder("tutorial");
        let folder = around.join("empty");
        prepare(&around, &folder, &self.programs);
        let ports = [3000, 8080, 8081].map(|of_page| (of_page, free_port()));
        let own = |text: &str| {
            let mut text = text.to_owned();
            for (theirs, ours) in &self.own {
                text = text.replace(theirs, ours);
            }
            for (theirs, ours) in ports {
                for before in ["127.0.0.1:", "127.0.0.1\", ", "--port ", "listen("] {
                    let (theirs, ours) = (format!("{before}{theirs}"), format!("{before}{ours}"));
                    text = text.replace(&theirs, &ours);
                }
            }
            text
        };
        let script = script(&text, &own(&self.waits.join("\n")), &self.before, &own);
        let mut bash = Command::new("bash");
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("SEMEL_")) {
            bash.env_remove(name);
        }
        let [_, (_, sidecar), _] = ports;
        bash.env("SEMEL_LISTENER_ADDRESS", format!("127.0.0.1:{sidecar}"))
            .env("PATH", path_with(&around.join("bin")))
            .env("XDG_STATE_HOME", &around)
            .current_dir(&folder);
        let output = bash.arg("-c").arg(&script).stdin(Stdio::null()).output();
        let output = output.expect("bash runs");
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        compare(&text, &printed, &own);
        std::fs::remove_dir_all(around).expect("a folder of our own");
    }
}

/// An empty folder, a clone beside it, and a `PATH` on which `semel` and others are installed.
fn prepare(around: &Path, folder: &Path, programs: &[&str]) {
    let bin = around.join("bin");
    std::fs::create_dir(folder).expect("a folder");
    std::fs::create_dir(&bin).expect("a folder");
    for name in ["semel"].iter().chain(programs) {
        symlink(program(name), bin.join(name)).expect("a link");
    }
    symlink(root().canonicalize().expect("a path"), around.join("semel")).expect("a link");
}

fn path_with(bin: &Path) -> std::ffi::OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let all = [PathBuf::from(bin)]
        .into_iter()
        .chain(std::env::split_paths(&path));
    std::env::join_paths(all).expect("a PATH")
}

/// The page as one shell script. A line `=== NUMBER` stands before the output of each shell block.
fn script(page: &str, waits: &str, before: &str, own: &impl Fn(&str) -> String) -> String {
    let mut script = format!(
        "exec 2>&1\ntrap 'kill $(jobs -p) 2>/dev/null' EXIT\n\
         waits=$(cat <<'WAITS'\n{waits}\nWAITS\n)\n\
         turn=0\n\
         sleep() {{\n\
           turn=$((turn + 1)); condition=$(sed -n \"${{turn}}p\" <<< \"$waits\")\n\
           for _ in $(seq 600); do eval \"$condition\" && return; command sleep 0.1; done\n\
           echo \"still not: $condition\"\n\
         }}\n{}\n",
        own(before)
    );
    let mut number = 0;
    for block in blocks(page) {
        if block.kind == "sh" {
            script += &format!("echo '=== {number}'\n{}", own(&block.text));
            number += 1;
        } else if let Some(file) = block.file() {
            script += &format!("mkdir -p \"$(dirname {file})\"\n");
            script += &format!(
                "cat > {file} <<'END_OF_FILE'\n{}END_OF_FILE\n",
                own(&block.text)
            );
        }
    }
    script
}

fn compare(page: &str, printed: &str, own: &impl Fn(&str) -> String) {
    let commands = commands(page);
    let parts: Vec<&str> = printed.split("=== ").skip(1).collect();
    assert_eq!(parts.len(), commands.len(), "{printed}");
    for (part, command) in parts.iter().zip(&commands) {
        let (_, printed) = part.split_once('\n').unwrap_or_default();
        assert!(!printed.contains("still not: "), "{printed}");
        if let Some(expected) = &command.output {
            assert_shown(&own(expected), printed, command.line);
        }
    }
}

#[test]
fn any_service() {
    Guide::new("tutorials/any-service.md", &[SERVICE, SIDECAR, SERVICE]).follow();
}

#[test]
fn fastapi() {
    Guide::new("tutorials/fastapi.md", &[SIDECAR, SERVICE]).follow();
}

#[test]
fn express() {
    Guide::new("tutorials/express.md", &[SIDECAR, SERVICE]).follow();
}

#[test]
fn axum() {
    let mut guide = Guide::new("tutorials/axum.md", &[SERVICE, SERVICE]);
    // The versions that are tested; compiled on one core, beside other tests, and kept for the next
    // run.
    guide.before =
        "export CARGO_BUILD_JOBS=1\ncp ../semel/Cargo.lock .\nmkdir -p ../semel/target/tutorials\n\
                    ln -s ../semel/target/tutorials target"
            .to_owned();
    guide.follow();
}

#[test]
fn agent() {
    Guide::new("tutorials/agent.md", &[]).follow();
}

#[tokio::test]
async fn jobs() {
    let postgres = PostgresServer::start(&[]).await;
    let mut guide = Guide::new("tutorials/jobs.md", &[SIDECAR, "test -e charges.txt"]);
    guide.own = vec![
        ("postgres://app@127.0.0.1/app", postgres.url()),
        ("job_01a1eaa0…", "job_…".to_owned()),
    ];
    let follow = tokio::task::spawn_blocking(move || guide.follow());
    follow.await.expect("the tutorial works");
}

/// Starts the service of the first tutorial.
fn charges() -> String {
    let page = root().join("docs/tutorials/any-service.md");
    let page = std::fs::read_to_string(page).expect("a page");
    let all = blocks(&page);
    let mut files = all
        .iter()
        .filter(|block| block.file() == Some("charges.py"));
    let service = &files.next().expect("the service").text;
    format!(
        "cat > charges.py <<'END_OF_FILE'\n{service}END_OF_FILE\npython3 charges.py &\nsleep 1\n"
    )
}

#[test]
fn testing_a_service() {
    let mut guide = Guide::new("how-to/test-your-code.md", &[SERVICE, SIDECAR]);
    guide.before = charges();
    guide.follow();
}

#[tokio::test]
async fn rolling_out_with_observe_mode() {
    let redis = RedisServer::start(&["--appendonly", "yes"]).await;
    let page = "how-to/roll-out-with-observe-mode.md";
    let mut guide = Guide::new(page, &[SERVICE, SIDECAR]);
    guide.before = charges();
    guide.own = vec![
        ("redis://127.0.0.1:6379", redis.url()),
        ("systemctl reload semel", "kill -HUP $!".to_owned()),
    ];
    let follow = tokio::task::spawn_blocking(move || guide.follow());
    follow.await.expect("the guide works");
}

#[test]
fn resolving_a_key_in_doubt() {
    let page = "how-to/resolve-a-key-in-doubt.md";
    let mut guide = Guide::new(page, &[SERVICE, SIDECAR]);
    guide.before = charges()
        + "semel serve --upstream http://127.0.0.1:3000 --store sqlite://keys.db \
           --set defaults.crash=hold --admin 127.0.0.1:8081 --set admin.open=true 2> semel.log &\n\
           sleep 1\n\
           curl -s http://127.0.0.1:8080/charges -H 'Idempotency-Key: ord-123' \
           -d '{\"order\": \"A-3\", \"cents\": 1, \"crash\": true}'\n";
    let newest = "$(semel keys list --in-doubt | awk 'NR == 2 { print substr($1, 1, 12) }')";
    guide.own = vec![
        ("inspect 4f5850aab8bb", format!("inspect {newest}")),
        ("4f5850aab8bb…", "…".to_owned()),
    ];
    guide.follow();
}

#[test]
fn every_guide_with_commands_is_followed() {
    for folder in ["tutorials", "how-to"] {
        let pages = std::fs::read_dir(root().join("docs").join(folder)).expect("a folder");
        for page in pages {
            let file = page.expect("a page").file_name();
            let page = format!("{folder}/{}", file.to_string_lossy());
            let text = std::fs::read_to_string(root().join("docs").join(&page)).expect("text");
            let tests = concat!(include_str!("main.rs"), include_str!("walks.rs"));
            let is_followed = tests.contains(&format!("\"{page}\""));
            // Continuous integration runs the commands of this page itself.
            let is_for_contributors = page == "how-to/contribute-a-store.md";
            let has_commands = !commands(&text).is_empty();
            assert!(
                is_followed || is_for_contributors || !has_commands,
                "{page}"
            );
        }
    }
}
