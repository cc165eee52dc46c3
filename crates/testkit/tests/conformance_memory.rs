//! The memory store keeps every rule.

use semel_conformance::MemorySubject;

semel_conformance::conformance_tests!(memory, async || MemorySubject::new());
