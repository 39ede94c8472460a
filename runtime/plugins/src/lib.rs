//! The plugin host: finds family plugins in directories, asks them what a checkpoint is, and checks what they answer.
//!
//! A plugin is somebody else's code. Three things keep the server on its feet whatever that code does:
//!
//! - [`Plugins`] opens only files that the user or the system's owner could have put there, and never the file itself but a
//!   private copy, so that overwriting a plugin touches nothing that runs.
//! - Every question is asked in a process of its own ([`worker`]), which ends with the answer: a crash, a loop or a flood
//!   of output costs that question. A `.wasm` plugin is interpreted there, without any access to the system.
//! - What comes back is data, and passes the same checks as everything that comes out of a file.
//!
//! [`Families`] is what the rest of the program sees: built-in families and plugins as one, with the order among them.
//!
//! Invariant: no code of a plugin runs in this process, but the ops that it brings where the user allowed that.

mod copies;
mod error;
mod families;
mod file;
mod ops;
mod platform;
mod plugins;
mod trust;
mod verify;
pub mod worker;

pub use error::PluginError;
pub use families::{Described, Families, FamiliesConfig, FamilyChoice};
pub use plugins::{Fault, Found, Plugin, Plugins, PluginsConfig};
