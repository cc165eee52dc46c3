//! The rules for the direction of dependencies.

/// The packages that a rule applies to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Who {
    /// One of our packages, by name.
    Package(&'static str),
    /// Every package of ours that is published.
    Published,
    /// Every package of ours.
    Any,
}

/// Packages that must not be reachable by normal dependencies, at any distance.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    pub(crate) name: &'static str,
    pub(crate) who: Who,
    /// Package names; a `*` at the end stands for any rest.
    pub(crate) never: &'static [&'static str],
    pub(crate) why: &'static str,
}

/// Dependencies under this condition belong to test builds only.
pub(crate) const TEST_ONLY_CONDITION: &str = "semel_shuttle";

/// Everything that does I/O or brings a scheduler: runtimes, sockets, TLS, clients of servers.
const INPUT_AND_OUTPUT: &[&str] = &[
    "actix*",
    "async-executor",
    "async-io",
    "async-nats",
    "async-std",
    "aws-*",
    "axum*",
    "deadpool*",
    "fred",
    "h2",
    "hyper*",
    "isahc",
    "lapin",
    "mio",
    "mysql*",
    "native-tls",
    "nats",
    "object_store",
    "openssl*",
    "polling",
    "postgres*",
    "quinn*",
    "redis*",
    "reqwest*",
    "rmcp*",
    "rusqlite",
    "rustls*",
    "smol",
    "socket2",
    "sqlx*",
    "tokio*",
    "tonic*",
    "tower*",
    "ureq",
    "warp",
];

/// The table of allowed and forbidden directions.
pub(crate) const RULES: &[Rule] = &[
    Rule {
        name: "core-without-io",
        who: Who::Package("semel-core"),
        never: INPUT_AND_OUTPUT,
        why: "the protocol must run under any runtime, in a model and in a simulation",
    },
    Rule {
        name: "core-at-the-bottom",
        who: Who::Package("semel-core"),
        never: &["semel", "semel-*"],
        why: "everything of ours builds on the protocol, never the other way round",
    },
    Rule {
        name: "http-knows-no-store",
        who: Who::Package("semel-http"),
        never: &[
            "semel",
            "semel-stores",
            "redis*",
            "sqlx*",
            "object_store",
            "tonic*",
        ],
        why: "a door knows the engine; which store is behind it is the user's to say",
    },
    Rule {
        name: "stream-on-core-alone",
        who: Who::Package("semel-stream"),
        never: &[
            "semel",
            "semel-http",
            "semel-server",
            "semel-stores",
            "semel-cli",
        ],
        why: "a replica or a consumer needs no store of records, and no server",
    },
    Rule {
        name: "tool-gateway-without-a-server",
        who: Who::Package("semel-mcp"),
        never: &["semel-server", "semel-cli", "semel-stream"],
        why: "a door knows the engine; sidecar, dashboard and command line are built on doors",
    },
    Rule {
        name: "no-testkit-in-a-shipped-crate",
        who: Who::Published,
        never: &[
            "semel-testkit",
            "semel-conformance",
            "semel-devservers",
            "semel-httpclient",
        ],
        why: "tests are a dev-dependency",
    },
    Rule {
        name: "suite-on-core-alone",
        who: Who::Package("semel-conformance"),
        never: &[
            "semel",
            "semel-http",
            "semel-server",
            "semel-stores",
            "semel-testkit",
        ],
        why: "who writes a store needs the protocol and the suite, and nothing else of ours",
    },
    Rule {
        name: "servers-for-development-without-a-product",
        who: Who::Package("semel-devservers"),
        never: &["semel", "semel-*", "axum*", "hyper*", "sqlx*", "redis*"],
        why: "`cargo xtask` is built before anything else, and the tests of every crate need servers",
    },
    Rule {
        name: "test-client-without-a-product",
        who: Who::Package("semel-httpclient"),
        never: &["semel", "semel-*", "axum*", "reqwest*", "rustls*"],
        why: "the tests of every crate need it: it must be compiled in seconds",
    },
    Rule {
        name: "nothing-on-the-tools",
        who: Who::Any,
        never: &["semel-bench", "semel-faults", "xtask"],
        why: "programs of the repository are no libraries",
    },
];

/// Whether one of the patterns matches a package name.
pub(crate) fn matches(patterns: &[&str], name: &str) -> bool {
    patterns
        .iter()
        .any(|pattern| match pattern.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => *pattern == name,
        })
}
