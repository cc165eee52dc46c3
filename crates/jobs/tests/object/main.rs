//! The queue in a bucket of a real server that speaks S3 (document O).

mod apart;
mod events;
mod killed;
mod layout;
mod leases;
mod support;
mod work;
