//! [`Property`]: a named condition on states.

use super::Protocol;
use super::world::World;

/// A condition on states.
type Condition = fn(&Protocol, &World) -> bool;

/// A named condition.
pub(super) struct Property {
    pub(super) name: &'static str,
    pub(super) condition: Condition,
}

pub(super) const fn property(name: &'static str, condition: Condition) -> Property {
    Property { name, condition }
}
