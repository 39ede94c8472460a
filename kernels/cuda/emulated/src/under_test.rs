//! What tests of kernels run on.

use std::sync::Arc;

use bantam_cuda::{
    Device,
    card::{Card, CardOptions},
};

use crate::Emulated;

/// Number of the real card that tests run on (`tests/device.sh`), instead of an emulated one.
pub const CARD: &str = "BANTAM_TEST_CARD";

/// An emulated card of this compute capability, times ten; the real card of the number in [`CARD`] if that is set, of whatever
/// kind it is. Its NVRTC is that of `BANTAM_NVRTC`, or what the system's loader finds.
///
/// # Panics
/// If that card cannot be opened: the test cannot be made.
#[allow(clippy::panic, reason = "a test that was to run on a card must not pass without")]
pub fn under_test(kind: u32) -> Arc<dyn Device> {
    let Some(number) = std::env::var_os(CARD) else { return Arc::new(Emulated::of_kind(kind)) };
    let ordinal = number.to_str().and_then(|number| number.parse().ok());
    let ordinal = ordinal.unwrap_or_else(|| panic!("{CARD}={number:?}: expected the number of a card"));
    let options = CardOptions {
        ordinal,
        nvrtc: std::env::var_os("BANTAM_NVRTC").map(Into::into),
        cache: Some(std::env::temp_dir().join("bantam-test-kernels")),
    };
    Arc::new(Card::open(&options).unwrap_or_else(|e| panic!("{CARD}={ordinal}: {e}")))
}
