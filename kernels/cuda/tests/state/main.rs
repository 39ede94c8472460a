//! Kernels that read or write sequences' state, on the emulated device, against plain loops and against themselves.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod attention;
mod bench;
mod pool;
mod recurrent;
mod store;
