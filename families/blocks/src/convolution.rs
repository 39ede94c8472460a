//! A short causal convolution per channel, and the function behind it.

use bantam_family_api::{FamilyError, Fields};
use bantam_graph::{Act, GraphBuilder, ShortConv};

use super::config::extent;

/// The weights of one convolution.
#[derive(Clone, Debug)]
pub struct Convolution {
    /// `[channels, taps]`.
    pub weight: String,
    /// `[channels]`.
    pub bias: Option<String>,
    /// Entries of a row.
    pub channels: usize,
    /// Tokens that count, the row's own included.
    pub taps: usize,
}

impl Convolution {
    /// The convolution and SiLU: nodes `NAME` and `NAME_act`, state `NAME`.
    pub fn apply(&self, g: &mut GraphBuilder, name: &str, x: &str) -> String {
        let state = g.recurrent(name, &[self.taps.saturating_sub(1), self.channels]);
        let (weight, bias) = (self.weight.clone(), self.bias.clone());
        let y = g.short_conv(name, ShortConv { x: x.into(), weight, bias, dilation: 1, state });
        g.activate(&format!("{name}_act"), &y, Act::Silu)
    }
}

/// `ssm.conv_kernel`.
///
/// # Errors
/// If it is missing or below 2.
pub fn conv_taps(fields: &Fields<'_>) -> Result<usize, FamilyError> {
    const KEY: &str = "ssm.conv_kernel";
    match extent(fields, KEY)? {
        1 => Err(fields.wrong(KEY, "2 or more", "1")),
        taps => Ok(taps),
    }
}
