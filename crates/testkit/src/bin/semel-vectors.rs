//! Prints the test vectors as one JSON object: file name to contents. `cargo xtask generate` writes
//! them.

fn main() {
    let files: serde_json::Map<String, serde_json::Value> = semel_testkit::vectors::all()
        .into_iter()
        .map(|(name, contents)| (name.to_owned(), contents.into()))
        .collect();
    println!("{}", serde_json::Value::Object(files));
}
