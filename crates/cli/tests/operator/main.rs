//! The operator's commands as the real program, on real stores and a real sidecar.

mod audit;
mod bucket;
mod demo;
mod dev;
mod doctor;
mod jobs;
mod keys;
mod measure;
mod support;
mod tables;
mod tls;
