//! Settings that the pages show are settings that the program takes.

use std::path::{Path, PathBuf};

use semel_testkit::private::new_folder;
use semel_tests::pages::{blocks, root};
use semel_tests::{semel, semel_command};

/// All pages under `docs`, and the examples' own.
fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let is_other = path.ends_with("target") || path.ends_with("node_modules");
        if path.is_dir() && !is_other && !path.ends_with("venv") {
            pages(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "md") {
            found.push(path);
        }
    }
}

/// What `semel` says of a file with this text: whether it is taken, and why not.
fn taken(text: &str) -> (bool, String) {
    let folder = new_folder("docs");
    let file = folder.join("settings.toml");
    // Files that the text names are there, in the folder of the test.
    let own = format!("{}/", folder.display());
    let text = ["/etc/semel/", "/var/lib/semel/"]
        .iter()
        .fold(text.to_owned(), |text, place| text.replace(place, &own));
    for name in text
        .split(&own)
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
    {
        std::fs::write(folder.join(name), "postgres://semel@127.0.0.1/audit\n").expect("a file");
    }
    std::fs::write(&file, &text).expect("a file");
    let mut command = semel_command(&semel());
    if text.starts_with("# semel mcp") {
        command.args(["mcp", "--store", "memory://", "--config"]);
        // A server that ends at once: the settings are read before it is asked anything.
        command.arg(&file).args(["--", "true"]);
    } else {
        command.args(["config", "check", "--config"]).arg(&file);
        if !text.contains("[upstream]") {
            command.args(["--upstream", "http://127.0.0.1:3000"]);
        }
        if !text.contains("[store]") {
            command.args(["--store", "memory://"]);
        }
    }
    let output = command.output().expect("it runs");
    std::fs::remove_dir_all(folder).expect("a folder of our own");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    // 3: the settings are wrong.
    (output.status.code() != Some(3), said)
}

#[test]
fn every_block_of_settings_is_taken() {
    let mut files = Vec::new();
    pages(&root().join("docs"), &mut files);
    pages(&root().join("examples"), &mut files);
    let mut checked = 0;
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a page");
        let settings = blocks(&text).into_iter();
        let settings = settings.filter(|block| block.kind == "toml");
        // Cargo's manifests and the files of tokens are no settings.
        let others = ["[dependencies]", "[[operator]]", "[[token]]"];
        let is_other = |text: &str| others.iter().any(|other| text.contains(other));
        for block in settings.filter(|block| !is_other(&block.text)) {
            let (taken, why) = taken(&block.text);
            assert!(taken, "{}:{}: {why}", file.display(), block.line);
            checked += 1;
        }
    }
    assert!(checked >= 3, "only {checked} blocks were found");
}

#[test]
fn a_setting_that_is_not_there_is_found() {
    for wrong in [
        "[jobs]\nenable = true\n",
        "# semel mcp\nsay_replay = true\n",
    ] {
        let (taken, said) = taken(wrong);
        assert!(!taken, "{wrong}: {said}");
    }
}
