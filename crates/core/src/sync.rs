//! The locks of this crate: parking_lot's, or shuttle's where interleavings are explored.

#[cfg(not(semel_shuttle))]
pub(crate) use parking_lot::Mutex;

#[cfg(semel_shuttle)]
pub(crate) use explored::Mutex;

#[cfg(semel_shuttle)]
mod explored {
    /// shuttle's mutex behind parking_lot's signature.
    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(shuttle::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> shuttle::sync::MutexGuard<'_, T> {
            self.0
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
        }
    }
}

#[cfg(not(semel_shuttle))]
pub(crate) use std::sync::atomic;

#[cfg(semel_shuttle)]
pub(crate) use shuttle::sync::atomic;
