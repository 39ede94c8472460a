//! Rotary positions of tokens, and of rows that stand for blocks of them.

use std::collections::BTreeMap;

use bantam_graph::{GraphBuilder, InputSource};

/// Positions of tokens, and of the first token of each block, by the block's length.
#[derive(Clone, Debug)]
pub struct Positions {
    /// Those of tokens.
    pub tokens: String,
    blocks: BTreeMap<usize, String>,
}

impl Positions {
    /// Those of tokens alone, by a value that is there.
    pub fn of_tokens(value: &str) -> Self {
        Positions { tokens: value.into(), blocks: BTreeMap::new() }
    }

    /// Declares the inputs that the blocks of these lengths need.
    pub fn declare(g: &mut GraphBuilder, blocks: impl Iterator<Item = usize>) -> Self {
        let mut positions = Self::of_tokens(&g.input("positions", InputSource::Positions));
        for stride in blocks {
            let input = |g: &mut GraphBuilder| {
                g.input(&format!("block_positions_{stride}"), InputSource::StridedPositions { stride })
            };
            positions.blocks.entry(stride).or_insert_with(|| input(g));
        }
        positions
    }

    /// Those of blocks of this length.
    pub fn of_blocks(&self, stride: usize) -> &str {
        self.blocks.get(&stride).map_or("", String::as_str)
    }
}
