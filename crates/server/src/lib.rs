//! Semel as a process: the sidecar proxy, the protocol API and the admin API. The binary is `semel`.
