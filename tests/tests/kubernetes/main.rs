//! `deploy/kubernetes`: manifests that fit the API, name only what exists, and let pods do no more
//! than they need.
//!
//! | module | is |
//! |---|---|
//! | `built` | what kustomize makes of the manifests |
//! | `manifests` | schemas, references, security, times |

mod built;
mod manifests;
