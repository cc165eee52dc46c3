//! SIGHUP loads encryption keys again, and ends neither the sidecar nor the gateway.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};

use semel_testkit::private::{free_port, new_folder};

use crate::support::{Service, semel};

fn key_file(folder: &Path) -> PathBuf {
    let file = folder.join("keys");
    let made = semel()
        .arg("encryption-key")
        .stdout(Stdio::piped())
        .output();
    let line = made.expect("the program runs").stdout;
    std::fs::write(&file, line).expect("a file");
    file
}

fn add_key(file: &Path) {
    let mut made = semel();
    made.args(["encryption-key", "--id", "2"])
        .stdout(Stdio::piped());
    let made = made.output();
    let mut keys = std::fs::read(file).expect("a file");
    keys.extend(made.expect("the program runs").stdout);
    std::fs::write(file, keys).expect("a file");
}

/// Reads the log until a line has this text.
fn wait_for(log: &mut BufReader<ChildStderr>, text: &str) {
    let mut all = String::new();
    loop {
        let mut line = String::new();
        let read = log.read_line(&mut line).expect("a log");
        assert!(read > 0, "it ended without {text:?}:\n{all}");
        if line.contains(text) {
            return;
        }
        all.push_str(&line);
    }
}

fn start(command: &mut Command) -> (Child, BufReader<ChildStderr>) {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let log = BufReader::new(child.stderr.take().expect("a log"));
    (child, log)
}

/// Whether the process has a handler for SIGHUP, which would end it otherwise.
fn has_handler(child: &Child) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id()));
    let status = status.expect("a process");
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.expect("a mask").trim();
    u64::from_str_radix(caught, 16).expect("a mask") & 1 == 1
}

fn hang_up(child: &Child) {
    while !has_handler(child) {
        Command::new("sleep")
            .arg("0.05")
            .status()
            .expect("sleep runs");
    }
    let sent = Command::new("kill")
        .args(["-HUP", &child.id().to_string()])
        .status();
    assert!(sent.expect("kill runs").success());
}

#[test]
fn a_gateway_loads_its_keys_again_and_goes_on() {
    let folder = new_folder("gateway-keys");
    let keys = key_file(&folder);
    let store = format!("sqlite://{}", folder.join("keys.db").display());
    let mut command = semel();
    command
        .args(["mcp", "--store", &store, "--encryption-key-file"])
        .arg(&keys)
        .args(["--", "cat"]);
    let (mut child, mut log) = start(&mut command);
    wait_for(&mut log, "records are in");
    add_key(&keys);
    hang_up(&child);
    wait_for(&mut log, "the encryption keys were loaded again");
    // A file that can't be used changes nothing, and is not shown.
    std::fs::write(&keys, "1:5a5a5a\n").expect("a file");
    hang_up(&child);
    wait_for(&mut log, "the old ones stay");
    drop(child.stdin.take());
    let ended = child.wait().expect("an end");
    assert_eq!(ended.code(), Some(0), "{ended:?}");
}

#[test]
fn a_gateway_without_keys_survives_it_too() {
    let mut command = semel();
    command.args(["mcp", "--store", "memory://", "--", "cat"]);
    let (mut child, mut log) = start(&mut command);
    wait_for(&mut log, "records are in");
    assert!(has_handler(&child), "SIGHUP would end it");
    hang_up(&child);
    drop(child.stdin.take());
    let ended = child.wait().expect("an end");
    assert_eq!(ended.code(), Some(0), "{ended:?}");
}

#[test]
fn a_sidecar_loads_its_keys_again_and_refuses_jobs() {
    let service = Service::start();
    let folder = new_folder("sidecar-keys");
    let keys = key_file(&folder);
    let store = format!("sqlite://{}", folder.join("keys.db").display());
    let sidecar = || {
        let mut command = semel();
        command
            .args(["serve", "--store", &store])
            .args(["--upstream", &format!("http://{}", service.address)])
            .args(["--listen", &format!("127.0.0.1:{}", free_port())])
            .args([
                "--set",
                &format!("store.encryption.key_files={}", keys.display()),
            ]);
        command
    };
    let (mut child, mut log) = start(&mut sidecar());
    wait_for(&mut log, "listen");
    add_key(&keys);
    hang_up(&child);
    wait_for(&mut log, "the encryption keys were loaded again");
    child.kill().expect("killed");
    child.wait().expect("an end");
    let mut refused = sidecar();
    refused.args(["--set", "jobs.enabled=true"]);
    let refused = refused.stderr(Stdio::piped()).output();
    let said = refused.expect("the program runs").stderr;
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains("store.encryption"), "{said}");
}

/// Sends a signal to a process that has a handler for it.
fn terminate(child: &Child) {
    let sent = Command::new("kill")
        .args(["-TERM", &child.id().to_string()])
        .status();
    assert!(sent.expect("kill runs").success());
}

/// The rotation of a fleet, from the settings file of a gateway.
#[test]
fn a_gateway_reads_its_write_key_again() {
    let folder = new_folder("gateway-write-key");
    let keys = key_file(&folder);
    let settings = folder.join("mcp.toml");
    let write = |more: &str| {
        let text = format!(
            "[encryption]\nkey_files = [{:?}]\n{more}\n",
            keys.display().to_string()
        );
        std::fs::write(&settings, text).expect("a file");
    };
    let store = format!("sqlite://{}", folder.join("keys.db").display());
    let gateway = || {
        let mut command = semel();
        command
            .args(["mcp", "--store", &store, "--config"])
            .arg(&settings)
            .args(["--", "cat"]);
        command
    };
    write("write_key = 0\nrefuse_plain = true");
    let refused = gateway().stderr(Stdio::piped()).output();
    let refused = refused.expect("the program runs");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && said.contains("plain text"),
        "{said}"
    );

    write("write_key = 1\nrefuse_plain = true");
    let (mut child, mut log) = start(&mut gateway());
    wait_for(&mut log, "records are in");
    write("write_key = 2\nrefuse_plain = true");
    hang_up(&child);
    wait_for(&mut log, "the old ones stay");
    add_key(&keys);
    hang_up(&child);
    wait_for(&mut log, "the encryption keys were loaded again");
    drop(child.stdin.take());
    let ended = child.wait().expect("an end");
    assert_eq!(ended.code(), Some(0), "{ended:?}");
}

#[test]
fn a_sidecar_ends_while_it_waits_for_keys() {
    let service = Service::start();
    let folder = new_folder("sidecar-slow-keys");
    let keys = key_file(&folder);
    let [slow, asked] = ["slow", "asked"].map(|name| folder.join(name));
    // Gives keys at once, and once the file `slow` is there, not before its time is over.
    let script = format!(
        "test -e {slow} && {{ touch {asked}; exec sleep 600; }}; cat {keys}",
        slow = slow.display(),
        asked = asked.display(),
        keys = keys.display()
    );
    let settings = folder.join("semel.toml");
    let text = format!(
        "[store]\nurl = \"memory://\"\n[store.encryption]\nkey_command = [\"sh\", \"-c\", {script:?}]\n\
         key_command_timeout = \"30s\"\n"
    );
    std::fs::write(&settings, text).expect("a file");
    let mut command = semel();
    command
        .args(["serve", "--config"])
        .arg(&settings)
        .args(["--upstream", &format!("http://{}", service.address)])
        .args(["--listen", &format!("127.0.0.1:{}", free_port())]);
    let (mut child, mut log) = start(&mut command);
    wait_for(&mut log, "listen");
    std::fs::write(&slow, "").expect("a file");
    hang_up(&child);
    while !asked.exists() {
        Command::new("sleep")
            .arg("0.05")
            .status()
            .expect("sleep runs");
    }
    terminate(&child);
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut log, &mut rest).expect("a log");
    child.wait().expect("an end");
    assert!(rest.contains("draining"), "{rest}");
    assert!(
        !rest.contains("not loaded again"),
        "it waited for the keys:\n{rest}"
    );
}
