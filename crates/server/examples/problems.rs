//! Prints the pages of `docs/errors` as one JSON object: path → text.

fn main() -> anyhow::Result<()> {
    let pages: std::collections::BTreeMap<_, _> =
        semel_server::problems::pages().into_iter().collect();
    println!("{}", serde_json::to_string(&pages)?);
    Ok(())
}
