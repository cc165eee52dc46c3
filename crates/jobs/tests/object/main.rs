//! The queue in a bucket of a real server that speaks S3 (document O).

mod killed;
mod layout;
mod support;
mod work;
