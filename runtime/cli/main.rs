//! The `bantam` command.

fn main() {}
