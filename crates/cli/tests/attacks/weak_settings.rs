//! `semel doctor --security` reports every weak setting.

use std::process::Stdio;

use semel_testkit::private::new_folder;

use crate::support::semel;

/// The findings for these settings. Later settings override earlier ones.
fn found(more: &[&str]) -> Vec<String> {
    let mut command = semel();
    command.args(["doctor", "--security", "--json", "--store", "memory://"]);
    for setting in [
        "upstream.urls=http://127.0.0.1:1",
        "principals.from=header",
        "principals.header=x-user",
        "limits.tenant_rate=100",
    ]
    .iter()
    .chain(more)
    {
        command.args(["--set", setting]);
    }
    let output = command.stdout(Stdio::piped()).output();
    let output = output.expect("the program runs").stdout;
    let report: serde_json::Value = serde_json::from_slice(&output).expect("JSON");
    let findings = report["findings"].as_array().expect("findings");
    let of = findings.iter().filter(|one| one["about"] == "security");
    of.map(|one| one["found"].as_str().expect("text").to_owned())
        .collect()
}

#[test]
fn every_weak_setting_is_reported() {
    let secret = new_folder("lax").join("secret");
    std::fs::write(&secret, "0123456789abcdef0123456789abcdef").expect("a file");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(&secret, mode).expect("a mode");
    let secret = format!("store.secret_file={}", secret.display());
    let usual = found(&[]);
    assert!(!usual.is_empty(), "a line even where nothing is lax");
    for (settings, word) in [
        (&["principals.from=none"][..], "principals.from"),
        (&["listener.allow_underscores=true"], "allow_underscores"),
        (&["api.access=loopback"], "api.access"),
        (
            &["admin.address=127.0.0.1:0", "admin.open=true"],
            "admin.open",
        ),
        (&["defaults.store_down=open"], "store_down"),
        (&["defaults.mode=observe"], "defaults.mode"),
        (&["defaults.fingerprint.authority=false"], "authority"),
        (&["limits.body_rate=0B"], "body_rate"),
        (&["upstream.urls=http://192.0.2.1"], "upstream.urls"),
        (&["listener.trusted_peers=0.0.0.0/0"], "trusted_peers"),
        (&[secret.as_str()], "can be read by others"),
    ] {
        let has = |lines: &[String]| lines.iter().any(|line| line.contains(word));
        assert!(!has(&usual), "{word} in {usual:#?}");
        let lines = found(settings);
        assert!(has(&lines), "{word} not in {lines:#?}");
    }
}
