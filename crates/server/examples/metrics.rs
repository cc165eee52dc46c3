//! Prints `docs/metrics.md`, or `docs/event-fields.md` with the argument `fields`.

fn main() {
    let page = match std::env::args().nth(1).as_deref() {
        Some("fields") => semel_server::telemetry::fields_page(),
        _ => semel_server::telemetry::page(),
    };
    print!("{page}");
}
