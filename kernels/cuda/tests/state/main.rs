//! Kernels that read or write sequences' state, on the emulated device, against plain loops and against themselves.

mod attention;
mod bench;
mod pool;
mod recurrent;
mod store;
