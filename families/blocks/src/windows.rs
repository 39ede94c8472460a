//! Which layers see only a sliding window.

use bantam_family_api::{Checkpoint, FamilyError};
use serde::Serialize;

use super::config::extent_opt;

/// What a layer sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Sliding,
    Full,
}

/// A regular order of layers, by the number of layers from one that sees everything to the next.
#[derive(Clone, Copy, Debug)]
pub enum Period {
    /// The last layer of each period sees everything.
    FullLast(usize),
    /// The first one does.
    FullFirst(usize),
}

/// The window, and the kind of every layer.
#[derive(Clone, Debug, Serialize)]
pub struct Windows {
    sliding_window: Option<usize>,
    layer_kinds: Vec<Kind>,
}

impl Windows {
    /// Reads `attention.sliding_window` (none or 0: all layers see everything) and `attention.sliding_window_pattern`: a
    /// flag per layer, or a period of the same order as `usual`, which counts where the key is not given.
    ///
    /// # Errors
    /// The key that does not fit, or the pattern if there is neither it nor a usual period.
    pub fn read(checkpoint: &Checkpoint, layers: usize, usual: Option<Period>) -> Result<Self, FamilyError> {
        const WINDOW: &str = "attention.sliding_window";
        const PATTERN: &str = "attention.sliding_window_pattern";
        let fields = checkpoint.fields();
        if fields.usize_opt(WINDOW)?.unwrap_or(0) == 0 {
            return Ok(Windows { sliding_window: None, layer_kinds: vec![Kind::Full; layers] });
        }
        let sliding_window = extent_opt(&fields, WINDOW)?;
        let kind = |sliding| if sliding { Kind::Sliding } else { Kind::Full };
        if fields.is_array(PATTERN)
            && let Some(flags) = fields.bools_opt(PATTERN, layers)?
        {
            return Ok(Windows { sliding_window, layer_kinds: flags.into_iter().map(kind).collect() });
        }
        let period = match (extent_opt(&fields, PATTERN)?, usual) {
            (None, Some(usual)) => usual,
            (Some(n), None | Some(Period::FullLast(_))) => Period::FullLast(n),
            (Some(n), Some(Period::FullFirst(_))) => Period::FullFirst(n),
            (None, None) => {
                return Err(fields.wrong(PATTERN, &format!("a bool for each of the {layers} layers"), "no such key"));
            }
        };
        let slides = |i: usize| match period {
            Period::FullLast(n) => i % n != n - 1,
            Period::FullFirst(n) => !i.is_multiple_of(n),
        };
        Ok(Windows { sliding_window, layer_kinds: (0..layers).map(|i| kind(slides(i))).collect() })
    }

    /// Whether any layer slides.
    pub fn slide(&self) -> bool {
        self.sliding_window.is_some() && self.layer_kinds.contains(&Kind::Sliding)
    }

    /// Keys that a query of this layer sees, if it slides.
    pub fn of(&self, layer: usize) -> Option<usize> {
        self.sliding_window.filter(|_| self.layer_kinds.get(layer) == Some(&Kind::Sliding))
    }
}
