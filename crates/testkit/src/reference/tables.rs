//! The values that the steps of a sequence choose from: few, so that steps interact.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use semel_core::{
    Answer, AnswerBody, ClaimTerms, CrashPolicy, Fingerprint, Identity, Key, Namespace, Resolution,
    Secret, Settlement,
};

use super::entry::KeySubject;
use super::op::KEYS;

/// After this much time without a write, every record has expired.
pub(super) const LONGEST_RETENTION: Duration = Duration::from_millis(60);

pub(super) struct Tables {
    pub(super) subjects: [KeySubject; KEYS],
    pub(super) tenants: [&'static str; 2],
    pub(super) payloads: [Fingerprint; 2],
    pub(super) terms: [ClaimTerms; 12],
    pub(super) checkpoints: [Bytes; 3],
    pub(super) settlements: [Settlement; 6],
    pub(super) resolutions: [Resolution; 4],
}

pub(super) static TABLES: LazyLock<Tables> = LazyLock::new(|| {
    let secret = Secret::new(7, b"a secret for the driver's keys").expect("a secret");
    let tenants = ["acme", "glöbex"];
    let subject = |tenant: usize, key: &str| {
        let namespace = Namespace::new("test", tenants[tenant], "charge").expect("a namespace");
        let key = Key::parse(key).expect("a key");
        let identity = Identity::new(&secret, &namespace, &key);
        KeySubject {
            identity,
            namespace,
            hint: key.hint(),
            secret_id: secret.id(),
        }
    };
    let payload = |text: &[u8]| Fingerprint::builder(&secret).part(text).finish();
    let done = Arc::new(Answer {
        head: Bytes::from_static(b"201"),
        body: kept(b"{\"id\":1}\xff"),
    });
    let other = Arc::new(Answer {
        head: Bytes::from_static(b"201"),
        body: kept(b""),
    });
    let failed = Arc::new(Answer {
        head: Bytes::from_static(b"402"),
        body: kept(b""),
    });
    let large = Arc::new(Answer {
        head: Bytes::from_static(b"200"),
        body: AnswerBody::Omitted { bytes: 9 },
    });
    Tables {
        subjects: [
            subject(0, "ord-1"),
            subject(1, "ord-1"),
            subject(0, "ord-2"),
        ],
        tenants,
        payloads: [payload(b"ten euros"), payload(b"one euro")],
        terms: std::array::from_fn(terms),
        checkpoints: [kept_bytes(b"sent"), kept_bytes(b"paid"), Bytes::new()],
        settlements: [
            Settlement::Complete(done.clone()),
            Settlement::Release,
            Settlement::Doubt,
            Settlement::Fail(failed.clone()),
            Settlement::Complete(other.clone()),
            Settlement::Complete(large),
        ],
        resolutions: [
            Resolution::Complete(done),
            Resolution::Release,
            Resolution::Fail(failed),
            Resolution::Complete(other),
        ],
    }
});

const fn kept_bytes(bytes: &'static [u8]) -> Bytes {
    Bytes::from_static(bytes)
}

const fn kept(bytes: &'static [u8]) -> AnswerBody {
    AnswerBody::Kept(kept_bytes(bytes))
}

/// Both policies, one to three attempts, and spans of which one pair has lease and record end at
/// the same moment.
fn terms(at: usize) -> ClaimTerms {
    let crash = [
        CrashPolicy::Takeover,
        CrashPolicy::Takeover,
        CrashPolicy::Hold,
    ][at % 3];
    let (lease, retention, attempts) = [(10, 60, 3), (25, 25, 2), (20, 40, 2), (10, 30, 1)][at / 3];
    let millis = Duration::from_millis;
    ClaimTerms::new(millis(lease), millis(retention), crash, attempts).expect("fitting terms")
}
