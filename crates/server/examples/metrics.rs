//! Prints `docs/metrics.md`.

fn main() {
    print!("{}", semel_server::telemetry::page());
}
