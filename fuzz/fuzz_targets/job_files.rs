//! Files of jobs in a bucket: damage is refused; what is read is of that place alone, and is
//! written as what it was.
#![no_main]

use libfuzzer_sys::fuzz_target;
use semel_jobs::JobId;
use semel_jobs::object::files::{record, task};

const ID: u128 = 0x0190_0000_0000_7000_8000_0000_0000_0001;

fuzz_target!(|data: &[u8]| {
    let (id, other) = (JobId::from_u128(ID), JobId::from_u128(ID ^ 1));
    if let Ok((job, written)) = task(id, data) {
        assert_eq!(job.id, id, "a task is the one of its place");
        assert!(task(other, data).is_err(), "nor is it any other's");
        let (again, same) = task(id, &written).expect("what a queue writes, it reads");
        assert_eq!(format!("{job:?}"), format!("{again:?}"));
        assert_eq!(written, same);
        // A write that was cut short is never a task.
        assert!(task(id, &written[..written.len() - 1]).is_err());
    }
    if let Ok((names, written)) = record("charge", "k-1", data) {
        assert!(record("charge", "k-2", data).is_err(), "another key's");
        assert!(record("refund", "k-1", data).is_err(), "another scope's");
        let (again, same) = record("charge", "k-1", &written).expect("what a queue writes, it reads");
        assert_eq!((names, written.clone()), (again, same));
        assert!(record("charge", "k-1", &written[..written.len() - 1]).is_err());
    }
});
