//! The history checker flags each kind of impossible history, and nothing about its possible twin.

mod answers;
mod operators;
mod order;
mod owners;
mod story;
