//! Settling a packed record gives what unpacking, settling and packing gives.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use semel_core::record::{PackedRecord, SealedHeader};
use semel_core::{
    Answer, AnswerBody, Claim, ClaimTerms, Claimed, CrashPolicy, Fence, Fingerprint, Grant,
    Identity, InDoubt, Key, Namespace, Record, Secret, Settlement, Timestamp, Token, protocol,
};

fn running(checkpoint: &'static [u8]) -> (Identity, Record) {
    let (secret, key) = (Secret::none(), Key::parse("ord-123").expect("valid"));
    let namespace = Namespace::new("live", "acme", "charge").expect("valid");
    let span = Duration::from_secs(30);
    let claim = Claim {
        retry: false,
        identity: Identity::new(&secret, &namespace, &key),
        fingerprint: Fingerprint::builder(&secret).part(b"payload").finish(),
        token: Token(7),
        terms: ClaimTerms::new(span, span * 2, CrashPolicy::Hold, 3).expect("valid"),
        secret_id: 0,
        hint: key.hint(),
        namespace,
    };
    let now = Timestamp::from_micros(1_000_000);
    let decision = protocol::claim(None, &claim, now);
    assert!(matches!(decision.answer, Claimed::Won(_)));
    let record = Record {
        checkpoint: Bytes::from_static(checkpoint),
        ..decision.write.expect("valid")
    };
    (claim.identity, record)
}

/// A field that looks encrypted.
fn encrypted() -> Bytes {
    let header = SealedHeader {
        total_bytes: 44,
        key_id: 3,
        fence: Fence(1),
    };
    [&header.to_bytes()[..], &[7; 20]].concat().into()
}

#[test]
fn settling_the_packed_form_is_settling_the_record() {
    let kept = Arc::new(Answer::from_body(vec![1, 2, 3]));
    let left_out = Arc::new(Answer {
        head: Bytes::from_static(b"200"),
        body: AnswerBody::Omitted { bytes: 1 << 40 },
    });
    let encrypted = Arc::new(Answer {
        head: encrypted(),
        body: AnswerBody::Kept(Bytes::from_static(&[9; 16])),
    });
    let settlements = [
        Settlement::Complete(encrypted),
        Settlement::Complete(Arc::clone(&kept)),
        Settlement::Complete(left_out),
        Settlement::Fail(kept),
        Settlement::Release,
    ];
    // A clock that was set back changes nothing that was written.
    for now in [900_000, 5_000_000].map(Timestamp::from_micros) {
        for checkpoint in [
            Bytes::new(),
            Bytes::from_static(b"half-way"),
            self::encrypted(),
        ] {
            let (identity, record) = running(b"");
            let record = Record {
                checkpoint,
                ..record
            };
            let bytes = record.encode();
            let packed =
                PackedRecord::running(&bytes, &identity, record.fence, record.token).unwrap();
            assert_eq!(packed.retention_millis(), 60_000);
            for settlement in &settlements {
                let (fence, token, at) = (record.fence, record.token, now.max(record.written_at));
                let slow = protocol::settle(Some(&record), fence, token, settlement, at);
                let answer = settlement.answer().map(AsRef::as_ref);
                let quick = packed.settled(settlement.state(), answer, now);
                assert_eq!(quick, slow.write.unwrap().encode(), "{settlement:?}");
            }
        }
    }
}

#[test]
fn only_the_leases_own_running_record_is_taken() {
    let (identity, record) = running(b"");
    let bytes = record.encode();
    let take = |bytes: &[u8], identity: &Identity, fence, token| {
        PackedRecord::running(bytes, identity, fence, token).is_some()
    };
    let (fence, token) = (record.fence, record.token);
    assert!(take(&bytes, &identity, fence, token));
    assert!(!take(&bytes, &Identity::from_bytes([9; 32]), fence, token));
    assert!(!take(&bytes, &identity, Fence(fence.0 + 1), token));
    assert!(!take(&bytes, &identity, fence, Token(8)));
    for length in 0..bytes.len() {
        assert!(!take(&bytes[..length], &identity, fence, token), "{length}");
    }
    let mut other = bytes;
    other[0] = 99;
    assert!(!take(&other, &identity, fence, token), "another version");
    other[..2].copy_from_slice(&[1, 4]);
    assert!(!take(&other, &identity, fence, token), "in doubt");
}

#[test]
fn debug_output_shows_sizes_and_no_contents() {
    let (identity, record) = running(b"card 4242");
    let mut grant = Grant::from_record(identity, &record);
    grant.memo = record.encode().into();
    let in_doubt = InDoubt {
        fence: record.fence,
        attempt: 1,
        checkpoint: record.checkpoint.clone(),
    };
    for shown in [
        format!("{record:?}"),
        format!("{grant:?}"),
        format!("{:?}", Claimed::InDoubt(in_doubt)),
    ] {
        assert!(shown.contains("checkpoint: 9 bytes"), "{shown}");
        assert!(!shown.contains("4242"), "{shown}");
    }
}
