//! `semel doctor --security` reports every weak setting.

use std::path::Path;
use std::process::Stdio;

use semel_testkit::private::new_folder;

use crate::support::semel;

/// The findings for these settings. Later settings override earlier ones.
fn found(more: &[&str]) -> Vec<String> {
    let output = doctor(more);
    let of = output.iter().filter(|one| one["about"] == "security");
    of.map(|one| one["found"].as_str().expect("text").to_owned())
        .collect()
}

/// All findings, of the settings themselves too. `-SETTING` takes a usual one away.
fn doctor(more: &[&str]) -> Vec<serde_json::Value> {
    let mut command = semel();
    command.args(["doctor", "--security", "--json"]);
    for setting in [
        "upstream.urls=http://127.0.0.1:1",
        "principals.from=header",
        "principals.header=x-user",
        "limits.tenant_rate=100",
        "limits.tenant_keys=100",
    ]
    .iter()
    .filter(|usual| !more.iter().any(|one| takes_away(one, usual)))
    .chain(more.iter().filter(|one| !one.starts_with('-')))
    {
        command.args(["--set", setting]);
    }
    if !more.iter().any(|setting| setting.starts_with("store.url")) {
        command.args(["--store", "memory://"]);
    }
    let output = command.stdout(Stdio::piped()).output();
    let output = output.expect("the program runs").stdout;
    let mut report: serde_json::Value = serde_json::from_slice(&output).expect("JSON");
    match report["findings"].take() {
        serde_json::Value::Array(findings) => findings,
        other => panic!("no findings: {other}"),
    }
}

fn takes_away(one: &str, usual: &str) -> bool {
    let name = usual.split('=').next();
    one.strip_prefix('-')
        .is_some_and(|taken| Some(taken) == name)
}

/// A file with these permissions.
fn file(name: &str, text: &str, mode: u32) -> String {
    let file = new_folder("lax").join(name);
    std::fs::write(&file, text).expect("a file");
    set_mode(&file, mode);
    file.display().to_string()
}

fn set_mode(file: impl AsRef<Path>, mode: u32) {
    let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
    std::fs::set_permissions(file, mode).expect("a mode");
}

#[test]
fn plain_text_is_reported_only_without_a_key() {
    let file = new_folder("keys").join("keys");
    std::fs::write(&file, format!("1:{}\n", "5a".repeat(32))).expect("a file");
    let keys = format!("store.encryption.key_files={}", file.display());
    let is_plain = |lines: &[String]| lines.iter().any(|line| line.contains("in plain text"));
    assert!(is_plain(&found(&[])));
    let lines = found(&[&keys]);
    assert!(!is_plain(&lines), "{lines:#?}");
    let is_lax = |line: &String| line.contains("key_files") && line.contains("read by others");
    assert!(lines.iter().any(is_lax), "{lines:#?}");
}

#[test]
fn every_weak_setting_is_reported() {
    let usual = found(&[]);
    assert!(!usual.is_empty(), "a line even where nothing is lax");
    for (settings, word) in [
        (&["principals.from=none"][..], "principals.from"),
        (&["principals.from=none"], "replay_auth_url"),
        (&["-limits.tenant_keys"], "no quota"),
        (&["-limits.tenant_rate"], "no rate"),
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
    ] {
        let has = |lines: &[String]| lines.iter().any(|line| line.contains(word));
        assert!(!has(&usual), "{word} in {usual:#?}");
        let lines = found(settings);
        assert!(has(&lines), "{word} not in {lines:#?}");
    }
}

/// Files that others can read or change, and servers that are not verified.
#[test]
fn weak_files_and_credentials_are_reported() {
    let secret = "0123456789abcdef0123456789abcdef";
    // The setting, what the file is, and whether reading it is harmless.
    for (setting, more, text, is_public) in [
        ("store.secret_file", &[][..], secret, false),
        ("store.url_file", &[], "memory://", false),
        ("admin.token_file", &[], secret, false),
        ("audit.file", &[], "", false),
        ("jwt.key_file", &["jwt.algorithm=HS256"], secret, false),
        ("jwt.key_files", &["jwt.algorithm=HS256"], secret, false),
        ("jwt.key_file", &["jwt.algorithm=ES256"], "public", true),
        ("jwt.jwks_file", &[], "{}", true),
        ("api.tokens_file", &[], "", true),
        ("admin.operators_file", &[], "", true),
        ("upstream.ca_file", &[], "", true),
    ] {
        let file = file("named", text, 0o600);
        let value = format!("{setting}={file}");
        let settings = [&[value.as_str()][..], more].concat();
        let is_about = |lines: &[String], word: &str| {
            let mut lines = lines.iter();
            lines.any(|line| line.starts_with(setting) && line.contains(word))
        };
        let lines = found(&settings);
        assert!(
            !lines.is_empty() && !is_about(&lines, "others"),
            "{lines:#?}"
        );
        set_mode(&file, 0o644);
        let lines = found(&settings);
        assert_eq!(is_about(&lines, "be read by"), !is_public, "{lines:#?}");
        assert!(!is_about(&lines, "be changed by"), "{lines:#?}");
        set_mode(&file, 0o620);
        let lines = found(&settings);
        assert!(is_about(&lines, "be changed by"), "{lines:#?}");
    }
    let trail = file("audit.jsonl", "", 0o600);
    std::fs::write(format!("{trail}.key"), secret).expect("a file");
    set_mode(format!("{trail}.key"), 0o640);
    let lines = found(&[&format!("audit.file={trail}")]);
    let has_key = lines.iter().any(|line| line.contains("audit.jsonl.key"));
    assert!(has_key, "{lines:#?}");
}

#[test]
fn databases_that_are_not_verified_are_reported() {
    let has_mode = |setting: &str| {
        let lines = found(&[setting]);
        assert!(!lines.is_empty(), "{setting}");
        assert!(!format!("{lines:?}").contains("hush"), "{lines:#?}");
        lines.iter().any(|line| line.contains("TLS mode"))
    };
    let weak = [
        "postgres://u:hush@db.example/d?sslmode=require",
        "postgresql://u@db.example/d?max_connections=7&sslmode=disable",
        "postgres://u@db.example/d?sslmode=verify-ca",
        "mysql://u@db.example/d?ssl-mode=REQUIRED",
        "mysql://u@db.example/d?sslmode=preferred",
        "postgres://u@localhost/d?host=db.example&sslmode=prefer",
    ];
    let fine = [
        "postgres://u@db.example/d",
        "postgres://u@db.example/d?sslmode=verify-full",
        "mysql://u@db.example/d?ssl-mode=VERIFY_IDENTITY",
        "postgres://u@127.0.0.1/d?sslmode=disable",
        "postgres://u@db.example/d?host=/run/postgresql&sslmode=disable",
        "sqlite:///var/lib/keys.db",
    ];
    for (url, is_weak) in weak
        .map(|url| (url, true))
        .into_iter()
        .chain(fine.map(|url| (url, false)))
    {
        assert_eq!(has_mode(&format!("store.url={url}")), is_weak, "{url}");
        let named = file("url", &format!("{url}\n"), 0o600);
        assert_eq!(
            has_mode(&format!("store.url_file={named}")),
            is_weak,
            "{url}"
        );
    }
    let audit = "audit.postgres.url=postgres://u@db.example/d?sslmode=require";
    let lines = found(&["audit.file=trail.jsonl", audit]);
    let has_audit = lines.iter().any(|line| line.starts_with("audit.postgres"));
    assert!(has_audit, "{lines:#?}");
}

/// `redis://` to another machine is in the clear, wherever its URL is written.
#[test]
fn plain_redis_is_reported_from_a_file_too() {
    let named = file("url", "redis://u:hush@192.0.2.1:6379\n", 0o600);
    for setting in [
        "store.url=redis://u:hush@192.0.2.1:6379".to_owned(),
        format!("store.url_file={named}"),
    ] {
        let findings = doctor(&[&setting]);
        let text = format!("{findings:?}");
        assert!(
            text.contains("in the clear") && !text.contains("hush"),
            "{text}"
        );
    }
}

/// Of invalid settings nothing is known: the defaults say nothing about what will run.
#[test]
fn invalid_settings_are_the_only_finding() {
    let findings = doctor(&["defaults.mode=wrong"]);
    let is_settings = |one: &serde_json::Value| one["about"] == "settings";
    assert!(findings.iter().all(is_settings), "{findings:#?}");
    let mut verdicts = findings.iter().map(|one| &one["verdict"]);
    assert!(verdicts.any(|verdict| verdict == "broken"), "{findings:#?}");
    let mut alone = semel();
    alone.args(["doctor", "--security", "--json", "--store", "memory://"]);
    let alone = alone.stdout(Stdio::piped()).output();
    let alone = String::from_utf8(alone.expect("the program runs").stdout).expect("text");
    assert!(
        alone.contains("upstream.urls") && !alone.contains("\"security\""),
        "{alone}"
    );
}

#[test]
fn strict_settings_have_no_finding() {
    let secret = file("secret", "0123456789abcdef0123456789abcdef", 0o600);
    let encryption = file("encryption", &format!("1:{}", "5a".repeat(32)), 0o600);
    let key = file("key.pem", "public", 0o644);
    let lines = found(&[
        "store.url=rediss://cache.example:6379",
        &format!("store.secret_file={secret}"),
        &format!("store.encryption.key_files={encryption}"),
        "audit.file=/var/lib/semel/no-such-file.jsonl",
        "principals.from=jwt",
        "jwt.algorithm=ES256",
        &format!("jwt.key_file={key}"),
        "jwt.audience=shop",
    ]);
    assert_eq!(lines, ["every setting is as strict as possible"]);
}
