use super::*;

fn sources(toml: &str, name: &str) -> (Sources, std::path::PathBuf) {
    let file =
        std::env::temp_dir().join(format!("semel-config-{}-{name}.toml", std::process::id()));
    std::fs::write(&file, toml).unwrap();
    let sources = Sources {
        file: Some(file.clone()),
        ..Sources::default()
    };
    (sources, file)
}

fn load_errors(toml: &str, name: &str) -> Vec<String> {
    let (sources, file) = sources(toml, name);
    let findings = load(&sources).unwrap_err();
    std::fs::remove_file(file).unwrap();
    findings.0.iter().map(ToString::to_string).collect()
}

const ENDS: &str = "[store]\nurl = \"memory://\"\n[upstream]\nurls = [\"http://127.0.0.1:1\"]\n";

#[test]
fn all_errors_are_reported_at_once_with_line_and_fix() {
    let found = load_errors(
        "drian_time = \"30s\"\n[upstream]\nurls = [\"ftp://x\"]\nconnect_timeout = \
         \"soon\"\n\n[[routes]]\npath = \"/a\"\ncrash = \"holt\"\nretentoin = \"1d\"\nstreams = \
         1\n",
        "all",
    );
    let has = |text: &str| found.iter().any(|finding| finding.contains(text));
    assert_eq!(found.len(), 6, "{found:#?}");
    assert!(
        has(
            "drian_time (file, line 1): there is no such setting\n    fix: did you mean \
             `drain_time`?"
        ),
        "{found:#?}"
    );
    assert!(has("upstream.urls[0] (file, line 3)"), "{found:#?}");
    assert!(has("upstream.connect_timeout (file, line 4)"), "{found:#?}");
    assert!(
        has("routes[0].crash (file, line 8)") && has("did you mean \"hold\"?"),
        "{found:#?}"
    );
    assert!(
        has("routes[0].retentoin (file, line 9)") && has("did you mean `retention`?"),
        "{found:#?}"
    );
    assert!(has("routes[0].streams (file, line 10)"), "{found:#?}");
}

#[test]
fn debug_lines_are_of_one_key_in_a_hundred_and_audit_entries_stay_90_days() {
    let (sources, file) = sources(ENDS, "defaults");
    let loaded = load(&sources).unwrap();
    std::fs::remove_file(file).unwrap();
    assert_eq!(loaded.config.log.debug_percent, 1);
    assert_eq!(loaded.config.audit.retention.to_string(), "90d");
}

#[test]
fn responses_are_not_replayed_for_longer_than_their_records_are_kept() {
    let with = |span: &str| {
        let route = format!("[[routes]]\npath = \"/a\"\nretention = \"1h\"\n{span}\n");
        load_errors(&format!("{ENDS}{route}"), "answer-retention")
    };
    for (span, told) in [("2h", "for longer than"), ("5ms", "at least 10 ms")] {
        let found = with(&format!("answer_retention = \"{span}\"")).join("\n");
        assert!(
            found.contains("routes[0]") && found.contains(told),
            "{found}"
        );
    }
}

#[test]
fn authorization_of_replays_needs_a_url_that_keeps_credentials_secret() {
    let allowed = ["https://auth.example.com/check", "http://127.0.0.1:9/check"];
    let refused = [
        "http://auth.example.com/check",
        "auth.example.com",
        "https://",
    ];
    for url in allowed {
        let toml = format!("{ENDS}[defaults]\nreplay_auth_url = \"{url}\"\n");
        let (sources, file) = sources(&toml, "replay-allowed");
        load(&sources).unwrap_or_else(|findings| panic!("{findings}"));
        std::fs::remove_file(file).unwrap();
    }
    for url in refused {
        let toml = format!("{ENDS}[defaults]\nreplay_auth_url = \"{url}\"\n");
        let found = load_errors(&toml, "replay-refused");
        assert!(found[0].contains("defaults.replay_auth_url"), "{found:#?}");
    }
}

#[test]
fn missing_and_contradictory_settings_have_a_fix() {
    let found = load_errors(
        "[listener.tls]\ncert_file = \"/no/such\"\n[admin]\naddress = \
         \"0.0.0.0:1\"\n[tenants]\nfrom = \"jwt\"\n",
        "miss",
    );
    let has = |text: &str| found.iter().any(|finding| finding.contains(text));
    assert!(has("--upstream http://"), "{found:#?}");
    assert!(has("--store redis://"), "{found:#?}");
    assert!(has("TLS needs both"), "{found:#?}");
    assert!(has("/no/such can't be read"), "{found:#?}");
    assert!(has("anybody who can reach this address"), "{found:#?}");
    assert!(has("tokens can't be checked without a key"), "{found:#?}");
}

#[test]
fn zero_time_spans_are_refused() {
    let spans = [
        "upstream.connect_timeout",
        "upstream.response_timeout",
        "listener.head_timeout",
        "listener.body_timeout",
        "engine.store_timeout",
        "engine.breaker_first_try",
        "engine.breaker_open_for",
        "health.self_check_every",
    ];
    for span in spans {
        let found = load_errors(&format!("{span} = \"0s\"\n"), "span");
        let is_reported = |finding: &String| finding.starts_with(span) && finding.contains("1ms");
        assert!(found.iter().any(is_reported), "{span}: {found:#?}");
    }
}

#[test]
fn api_alone_needs_no_upstream() {
    let toml = "[store]\nurl = \"memory://\"\n[api]\naccess = \"loopback\"\n";
    let (sources, file) = sources(toml, "alone");
    assert!(load(&sources).is_ok());
    std::fs::remove_file(file).unwrap();
    let found = load_errors("[store]\nurl = \"memory://\"\n", "nothing");
    assert!(
        found.len() == 1 && found[0].contains("api.access"),
        "{found:#?}"
    );
}

#[test]
fn all_syntax_errors_are_reported() {
    let found = load_errors("a = \nb = [1,\n[c\n", "syntax");
    assert!(
        found
            .iter()
            .all(|finding| finding.contains("this is not TOML")),
        "{found:#?}"
    );
    assert!(found.len() > 1, "{found:#?}");
}

#[test]
fn flags_override_variables_which_override_the_file() {
    let (mut sources, file) = sources(&format!("environment = \"file\"\n{ENDS}"), "wins");
    let environment = |sources: &Sources| load(sources).unwrap().config.environment;
    assert_eq!(environment(&sources), "file");
    sources.env = vec![
        ("SEMEL_ENVIRONMENT".into(), "env".into()),
        ("SEMEL_TEST_X".into(), "1".into()),
    ];
    assert_eq!(environment(&sources), "env");
    sources.flags = vec![Flag {
        name: "--environment".into(),
        path: "environment".into(),
        value: "flag".into(),
    }];
    assert_eq!(environment(&sources), "flag");
    let shown = load(&sources).unwrap().effective_settings();
    let origin = |path: &str| {
        shown
            .iter()
            .find(|one| one.path == path)
            .unwrap()
            .origin
            .to_string()
    };
    assert_eq!(origin("environment"), "flag, --environment");
    assert_eq!(origin("store.url"), "file, line 3");
    assert_eq!(origin("drain_time"), "default");
    std::fs::remove_file(file).unwrap();
}

#[test]
fn variables_have_the_type_of_their_setting() {
    let env = [
        (
            "SEMEL_UPSTREAM_URLS",
            "http://127.0.0.1:1, http://127.0.0.1:2",
        ),
        ("SEMEL_STORE_URL", "memory://"),
        ("SEMEL_LISTENER_TRUST_FORWARDED", "true"),
        ("SEMEL_KEYS_MAX_BYTES", "64"),
        ("SEMEL_ENVIRONMENT", "17"),
    ];
    let mut sources = Sources {
        env: env
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec(),
        ..Sources::default()
    };
    let config = load(&sources).unwrap().config;
    assert_eq!(config.upstream.urls.len(), 2);
    assert!(config.listener.trust_forwarded);
    assert_eq!(config.keys.max_bytes, 64);
    assert_eq!(config.environment, "17");
    sources.env.push(("SEMEL_STORE_ULR".into(), "x".into()));
    let found = load(&sources).unwrap_err().to_string();
    assert!(found.contains("did you mean SEMEL_STORE_URL?"), "{found}");
}

#[test]
fn route_inherits_the_defaults() {
    let toml = format!(
        "{ENDS}[defaults]\nretention = \"7d\"\nfingerprint.query = false\n[[routes]]\npath = \
         \"/a\"\ncrash = \"hold\"\nfingerprint.headers = [\"x-a\"]\n"
    );
    let (sources, file) = sources(&toml, "route");
    let loaded = load(&sources).unwrap();
    std::fs::remove_file(file).unwrap();
    let route = &loaded.config.routes[0].settings;
    assert_eq!(
        (route.crash, route.retention.to_string()),
        (Crash::Hold, "7d".to_owned())
    );
    assert!(!route.fingerprint.query && route.fingerprint.path);
    assert_eq!(route.fingerprint.headers, ["x-a"]);
    assert_eq!(loaded.config.defaults.crash, Crash::Takeover);
    let shown = loaded.effective_settings();
    let origin = |path: &str| {
        shown
            .iter()
            .find(|one| one.path == path)
            .unwrap()
            .origin
            .to_string()
    };
    assert_eq!(origin("routes[0].retention"), "file, line 6");
    assert_eq!(origin("routes[0].crash"), "file, line 10");
    assert_eq!(origin("routes[0].lease"), "default");
}

#[test]
fn effective_settings_hide_passwords() {
    let flags = vec![
        Flag {
            name: "--store".into(),
            path: "store.url".into(),
            value: "redis://user:hunter2@127.0.0.1/1?password=hunter2".into(),
        },
        Flag {
            name: "--upstream".into(),
            path: "upstream.urls".into(),
            value: "http://a:hunter2@127.0.0.1:1/x".into(),
        },
    ];
    let loaded = load(&Sources {
        flags,
        ..Sources::default()
    })
    .unwrap();
    let shown = format!("{:?}", loaded.effective_settings());
    assert!(!shown.contains("hunter2"), "{shown}");
    assert!(shown.contains("redis://127.0.0.1/1?…"), "{shown}");
}

#[test]
fn no_possible_part_of_a_password_is_shown() {
    for (url, expected) in [
        // Two stores, as during a migration from one to the other.
        (
            "redis://h postgres://u:hunter2@h/d",
            "redis://h postgres://h/d",
        ),
        ("postgres://u:hun/hunter2@h/d", "postgres://h/d"),
        ("postgres://u:hun@hunter2@h/d", "postgres://h/d"),
        ("postgres://u:hunter2?x@h/d", "postgres://…"),
        ("postgres://u:hunter2 x@h/d", "…"),
        ("postgres:u:hunter2@h/d?x=a://b", "…"),
        ("s3://b?endpoint=http://u:hunter2@h", "s3://…"),
        ("redis:////s://u:hunter2@/,s://u:hunter2@h/d", "redis://h/d"),
        ("sqlite:///home/a@b/keys.db", "sqlite:///home/a@b/keys.db"),
        ("redis://h:1/2?prefix=a", "redis://h:1/2?…"),
        ("", "…"),
    ] {
        assert_eq!(without_password(url), expected, "{url}");
    }
}

#[test]
fn explain_describes_a_setting() {
    let text = explain("upstream.response_timeout").unwrap();
    assert!(
        text.contains("outcome unknown")
            && text.contains("\"1m\"")
            && text.contains("SEMEL_UPSTREAM_RESPONSE_TIMEOUT"),
        "{text}"
    );
    assert_eq!(
        explain("upstream.respons_timeout"),
        Err(Some("upstream.response_timeout"))
    );
    assert!(explain("tenants").unwrap().contains("tenants.claim"));
}

/// What other machines could forge or read is refused, and each refusal has its way out.
#[test]
fn settings_that_other_machines_could_abuse_are_refused() {
    let here = concat!("\"", env!("CARGO_MANIFEST_DIR"), "/Cargo.toml\"");
    let far = "listener.address = \"0.0.0.0:1\"\n";
    let admin = format!("admin.address = \"0.0.0.0:1\"\nadmin.token_file = {here}\n");
    let api = format!("{far}api.access = \"tokens\"\napi.tokens_file = {here}\n");
    let tenant = format!("{far}tenants.from = \"header\"\ntenants.header = \"x-tenant\"\n");
    let user = format!("{far}principals.from = \"header\"\nprincipals.header = \"x-user\"\n");
    let forwarded = format!("{far}listener.trust_forwarded = true\n");
    let names = format!("{admin}admin.allowed_names = [\"ann\"]\nadmin.insecure_tokens = true\n");
    let peers = "listener.trusted_peers = [\"10.0.0.0/8\"]\n";
    let cases: [(&str, &str, Option<&str>); 6] = [
        ("tenants.from", &tenant, Some(peers)),
        ("principals.from", &user, Some(peers)),
        ("listener.trust_forwarded", &forwarded, Some(peers)),
        ("admin.tls", &admin, Some("admin.insecure_tokens = true\n")),
        (
            "listener.tls",
            &api,
            Some("listener.insecure_tokens = true\n"),
        ),
        ("admin.allowed_names", &names, None),
    ];
    let base = "store.url = \"memory://\"\nupstream.urls = [\"http://127.0.0.1:1\"]\n";
    for (path, settings, way_out) in cases {
        let refused = |more: &str| {
            let toml = format!("{base}{settings}{more}");
            let (sources, file) = sources(&toml, "abuse");
            let loaded = load(&sources);
            std::fs::remove_file(file).unwrap();
            let findings = loaded.err().map_or(Vec::new(), |found| found.0);
            findings.iter().any(|finding| finding.path == path)
        };
        assert!(refused(""), "{path}: {settings}");
        if let Some(way_out) = way_out {
            assert!(!refused(way_out), "{path}: {way_out}");
        }
    }
}

/// A listener that others reach, and that does not know its callers, says so.
#[test]
fn callers_who_are_not_identified_cause_a_warning() {
    let warning = |settings: &str, name: &str| {
        let (sources, file) = sources(&format!("{settings}\n{ENDS}"), name);
        let loaded = load(&sources).unwrap_or_else(|findings| panic!("{findings}"));
        std::fs::remove_file(file).unwrap();
        let mut warnings = loaded.warnings.into_iter();
        warnings
            .find(|warning| warning.message.contains("callers are not identified"))
            .map(|warning| warning.to_string())
    };
    let public = "listener.address = \"0.0.0.0:8080\"";
    let told = warning(public, "shared-1").expect("a warning");
    assert!(told.contains("principals.from = \"jwt\""), "{told}");
    let tenants = format!("{public}\ntenants.from = \"host\"");
    assert!(
        warning(&tenants, "shared-2").is_some(),
        "tenants are not principals"
    );
    let known = format!(
        "{public}\nlistener.trusted_peers = [\"192.0.2.1\"]\nprincipals.from = \
         \"header\"\nprincipals.header = \"x-user\""
    );
    assert_eq!(warning(&known, "shared-3"), None);
    assert_eq!(
        warning("listener.address = \"127.0.0.1:8080\"", "shared-4"),
        None
    );
}

#[test]
fn plain_redis_on_another_machine_causes_a_warning() {
    let warned = |store: &str, name: &str| {
        let toml = format!("{store}\nupstream.urls = [\"http://127.0.0.1:1\"]\n");
        let (sources, file) = sources(&toml, name);
        let loaded = load(&sources).unwrap();
        std::fs::remove_file(file).unwrap();
        let mut warnings = loaded.warnings.iter();
        warnings.any(|warning| warning.message.contains("in the clear"))
    };
    // The URL itself, and a file that contains it.
    let warned = |url: &str, name: &str| {
        let (_, file) = sources(&format!("{url}\n"), &format!("{name}-url"));
        let inline = warned(&format!("store.url = \"{url}\""), name);
        let from_file = warned(&format!("store.url_file = {file:?}"), name);
        std::fs::remove_file(file).unwrap();
        [inline, from_file]
    };
    for (at, url) in [
        "redis://192.0.2.1:6379",
        "redis://user:secret@192.0.2.1/1?x=y",
        "redis+cluster://192.0.2.1:1,192.0.2.2:1",
        "redis+cluster://user:secret@127.0.0.1:1,192.0.2.2:1",
    ]
    .iter()
    .enumerate()
    {
        assert_eq!(warned(url, &format!("plain-{at}")), [true; 2], "{url}");
    }
    for (at, url) in [
        "redis://127.0.0.1",
        "redis://user:secret@localhost:6379/1",
        "redis+cluster://127.0.0.1:1,127.0.0.1:2",
        "rediss://192.0.2.1",
    ]
    .iter()
    .enumerate()
    {
        assert_eq!(warned(url, &format!("fine-{at}")), [false; 2], "{url}");
    }
}
