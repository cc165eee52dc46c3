//! The output of the demo.

use super::shop::Round;
use crate::out::{Style, Tone, say};

/// The number of orders in one line.
const IN_A_LINE: usize = 10;

pub(super) fn opening(look: Style, orders: u32, lost: u32) {
    say(look.paint(Tone::Strong, "Sent many times, done once."));
    say(format!(
        "A shop places {orders} orders. The network loses {lost} % of the responses, and the shop \
         retries.\n"
    ));
}

pub(super) fn round(look: Style, title: &str, way: &str, round: &Round) {
    say(format!(
        "{}   {}",
        look.paint(Tone::Strong, format!("{title:<14}")),
        look.paint(Tone::Quiet, way),
    ));
    let orders: Vec<(&String, &u32)> = round.charges.iter().collect();
    for line in orders.chunks(IN_A_LINE) {
        let cells: Vec<String> = line
            .iter()
            .map(|(order, charges)| {
                let number = order.trim_start_matches("ord-");
                let tone = if **charges == 1 {
                    Tone::Good
                } else {
                    Tone::Bad
                };
                let charges = format!("×{charges}");
                format!(
                    "{} {}",
                    look.paint(Tone::Quiet, number),
                    look.paint(tone, charges)
                )
            })
            .collect();
        say(format!("  {}", cells.join("  ")));
    }
    let duplicates = round.duplicates();
    let (tone, verdict) = match duplicates {
        0 => (Tone::Good, "every order was charged once".to_owned()),
        1 => (Tone::Bad, "1 charge too many".to_owned()),
        many => (Tone::Bad, format!("{many} charges too many")),
    };
    let replays = match round.replays {
        0 => String::new(),
        many => format!(", {many} answered by replay"),
    };
    say(format!(
        "  {} requests, {} responses lost{replays}",
        round.requests, round.lost
    ));
    say(format!(
        "  {} orders, {} charges: {}\n",
        round.charges.len(),
        look.paint(Tone::Strong, round.total()),
        look.paint(tone, verdict),
    ));
}

pub(super) fn closing(look: Style, bare: &Round, safe: &Round) {
    if let Some(response) = &safe.example {
        say(look.paint(
            Tone::Strong,
            format!(
                "A replay, as the shop got it (Idempotency-Key: {})",
                response.key
            ),
        ));
        say(format!("  HTTP/1.1 {}", response.status));
        for (name, value) in &response.headers {
            let value = String::from_utf8_lossy(value.as_bytes());
            let line = format!("  {name}: {value}");
            let is_ours =
                name.as_str().starts_with("idempotent") || name.as_str().starts_with("x-original");
            say(look.paint(if is_ours { Tone::Good } else { Tone::Quiet }, line));
        }
        say(format!("\n  {}\n", String::from_utf8_lossy(&response.body)));
    }
    say(format!(
        "{} charges without Semel, {} with it. The service was not changed.\n",
        look.paint(Tone::Strong, bare.total()),
        look.paint(Tone::Strong, safe.total()),
    ));
    say(look.paint(Tone::Strong, "Try next"));
    for (what, command) in [
        (
            "put your own service behind it, here on port 3000:",
            "semel serve --upstream http://127.0.0.1:3000 --store memory:// \
             --admin 127.0.0.1:9090 --set admin.open=true",
        ),
        (
            "send it one request twice:",
            "curl -i -X POST http://127.0.0.1:8080/ -H 'Idempotency-Key: try-1' -d '{}'",
        ),
        (
            "watch, list, check:",
            "semel top --admin http://127.0.0.1:9090\n  \
             semel keys list --admin http://127.0.0.1:9090\n  \
             semel doctor --store redis://127.0.0.1",
        ),
    ] {
        say(look.paint(Tone::Quiet, format!("  # {what}")));
        say(format!("  {command}"));
    }
}
