//! The actors on a fake device: its logits are a function of the tokens that it finds in the pages it is told to read,
//! so a wrong table, a missing copy or a page given away too early shows as a wrong token.

mod archive;
mod device;
pub(crate) mod faults;
mod figures;
mod probing;
mod serving;
mod sharing;
