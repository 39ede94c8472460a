//! Residual streams: how a block reads one row from them, and where its result goes (arXiv 2409.19606).

use bantam_family_api::{FamilyError, Fields};
use bantam_family_blocks::{Projection, Tensors, extent};
use bantam_graph::{Act, GraphBuilder, StreamUpdate};
use serde::Serialize;

/// Sizes of the streams and of the gates on them.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct StreamConfig {
    pub(super) count: usize,
    low_rank: usize,
}

impl StreamConfig {
    /// Reads `hyper_connection.count` and `hyper_connection.low_rank`.
    ///
    /// # Errors
    /// The key that does not fit.
    pub(super) fn read(fields: &Fields<'_>) -> Result<Self, FamilyError> {
        let count = extent(fields, "hyper_connection.count")?;
        Ok(StreamConfig { count, low_rank: extent(fields, "hyper_connection.low_rank")? })
    }

    /// Entries of all streams of a token.
    pub(super) fn width(&self, hidden: usize) -> usize {
        self.count.saturating_mul(hidden)
    }

    fn share(&self) -> f32 {
        1.0 / self.count as f32
    }
}

/// What a block or the output matrix reads: the mean of the normed streams, each entry gated.
#[derive(Clone, Debug)]
pub(super) struct Mix {
    config: StreamConfig,
    hidden: usize,
    norm: String,
    down: Projection,
    up: Projection,
}

impl Mix {
    /// `NAME_norm`, `NAME_down` and `NAME_up`.
    ///
    /// # Errors
    /// The tensor that does not fit.
    pub(super) fn declare(
        t: &mut Tensors<'_>,
        name: &str,
        config: StreamConfig,
        hidden: usize,
    ) -> Result<Self, FamilyError> {
        let width = config.width(hidden);
        Ok(Mix {
            config,
            hidden,
            norm: t.plain(&format!("{name}_norm"), &[width])?,
            down: t.matrix(&format!("{name}_down"), config.low_rank, width)?,
            up: t.matrix(&format!("{name}_up"), width, config.low_rank)?,
        })
    }

    /// The row that is read, and the normed streams that it was made of.
    pub(super) fn apply(&self, g: &mut GraphBuilder, name: &str, streams: &str, norm_eps: f32) -> [String; 2] {
        let named = |part: &str| format!("{name}_{part}");
        let normed = g.rms_norm(&named("norm"), streams, Some(&self.norm), norm_eps, Some(self.hidden));
        let low = self.down.apply(g, &named("down"), &normed);
        let low = g.scale(&named("down_scaled"), &low, self.config.share());
        let low = g.activate(&named("down_act"), &low, Act::Silu);
        let gate = self.up.apply(g, &named("up"), &low);
        let gate = g.activate(&named("gate"), &gate, Act::Sigmoid);
        let sum = g.stream_collapse(&named("sum"), &normed, self.config.count, Some(&gate));
        [g.scale(&named("mean"), &sum, self.config.share()), normed]
    }
}

/// The streams around one block.
#[derive(Clone, Debug)]
pub(super) struct Inject {
    mix: Mix,
    inject: Projection,
}

impl Inject {
    /// The tensors of a [`Mix`], and `NAME_inject`.
    ///
    /// # Errors
    /// The tensor that does not fit.
    pub(super) fn declare(
        t: &mut Tensors<'_>,
        name: &str,
        config: StreamConfig,
        hidden: usize,
    ) -> Result<Self, FamilyError> {
        Ok(Inject {
            mix: Mix::declare(t, name, config, hidden)?,
            inject: t.matrix(&format!("{name}_inject"), config.count, config.width(hidden))?,
        })
    }

    /// What the block reads, and the factor by which each stream takes in its result: between 0 and 2.
    pub(super) fn read(&self, g: &mut GraphBuilder, name: &str, streams: &str, norm_eps: f32) -> [String; 2] {
        let [x, normed] = self.mix.apply(g, name, streams, norm_eps);
        let named = |part: &str| format!("{name}_{part}");
        let inject = self.inject.apply(g, &named("inject"), &normed);
        let inject = g.scale(&named("inject_scaled"), &inject, self.mix.config.share());
        let inject = g.activate(&named("inject_act"), &inject, Act::Sigmoid);
        [x, g.scale(&named("post"), &inject, 2.0)]
    }
}

/// Every stream plus its share of a block's result.
pub(super) fn injected(g: &mut GraphBuilder, name: &str, streams: &str, y: String, post: String) -> String {
    g.stream_update(name, StreamUpdate { x: Some(streams.into()), y, post, mix: None })
}
