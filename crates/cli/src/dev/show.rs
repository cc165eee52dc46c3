//! The text in the terminal, and the browser.

use std::io::Write as _;
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use super::stage::Stage;
use crate::out::{Style, Tone};

/// Prints the addresses and what to try.
pub(super) fn welcome(look: Style, page: SocketAddr, stage: &Stage) {
    let strong = |text: &str| look.paint(Tone::Strong, text);
    let quiet = |text: &str| look.paint(Tone::Quiet, text);
    let (a, b) = (&stage.a, &stage.b);
    let charge = |address: SocketAddr| {
        format!(
            "curl -i http://{address}/charges -H 'Idempotency-Key: try-1' \
             -H 'Content-Type: application/json' -d '{{\"order\":\"mine-1\",\"cents\":1900}}'"
        )
    };
    let lines = [
        strong("Sent many times, done once."),
        String::new(),
        format!("  {}        http://{page}/", strong("The page")),
        format!(
            "  Semel A         http://{}   dashboard http://{}/",
            a.address, a.admin
        ),
        format!(
            "  Semel B         http://{}   dashboard http://{}/",
            b.address, b.admin
        ),
        format!("  without Semel   http://{}", stage.bare.address),
        String::new(),
        strong("Try"),
        quiet("  # send it twice: the second response is the stored one"),
        format!("  {}", charge(a.address)),
        quiet("  # the other sidecar knows the key too"),
        format!("  {}", charge(b.address)),
        quiet("  # without Semel each request charges"),
        format!("  {}", charge(stage.bare.address)),
        quiet("  # follow what Semel does"),
        format!("  semel tail --admin http://{}", a.admin),
        String::new(),
        "Ctrl-C ends everything and removes the store.".to_owned(),
    ];
    print(&lines.join("\n"));
}

/// Prints a line. The command goes on where nobody reads it.
pub(super) fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

/// Opens the page, where there is a terminal and a display.
pub(super) fn open_browser(look: Style, page: SocketAddr) {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let has_display = cfg!(target_os = "macos") || is_set("DISPLAY") || is_set("WAYLAND_DISPLAY");
    if !look.is_terminal() || !has_display {
        return;
    }
    let program = match cfg!(target_os = "macos") {
        true => "open",
        false => "xdg-open",
    };
    let mut command = Command::new(program);
    command.arg(format!("http://{page}/"));
    command.stdin(Stdio::null()).stdout(Stdio::null());
    // The address stands in the terminal for whoever has no such program.
    let _ = command.stderr(Stdio::null()).spawn();
}
