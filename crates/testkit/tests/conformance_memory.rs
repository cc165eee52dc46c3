//! The memory store keeps every rule.

use semel_testkit::conformance::MemorySubject;

semel_testkit::conformance_tests!(memory, async || MemorySubject::new());
