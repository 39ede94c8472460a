//! HTTP protocols over the runtime.
