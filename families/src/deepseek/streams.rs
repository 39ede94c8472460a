//! Residual streams: how a block reads one row from them and rewrites them all (arXiv 2512.24880), and how the last norm
//! does.

use bantam_family_api::{FamilyError, Fields};
use bantam_family_blocks::{EPSILON, Projection, Tensors, extent, number};
use bantam_graph::{Act, GraphBuilder, Op, StreamGates, StreamUpdate};
use serde::Serialize;

/// Sizes of the streams and of the gates on them.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct StreamConfig {
    pub(super) count: usize,
    iterations: u32,
    eps: f32,
}

impl StreamConfig {
    /// Reads `hyper_connection.count`, `hyper_connection.sinkhorn_iterations` and `hyper_connection.epsilon`.
    ///
    /// # Errors
    /// The key that does not fit.
    pub(super) fn read(fields: &Fields<'_>) -> Result<Self, FamilyError> {
        const ITERATIONS: &str = "hyper_connection.sinkhorn_iterations";
        let iterations = extent(fields, ITERATIONS)?;
        Ok(StreamConfig {
            count: extent(fields, "hyper_connection.count")?,
            iterations: u32::try_from(iterations)
                .ok()
                .filter(|n| *n <= 1000)
                .ok_or_else(|| fields.wrong(ITERATIONS, "at most 1000", &iterations.to_string()))?,
            eps: number(fields, "hyper_connection.epsilon", EPSILON)?,
        })
    }

    /// Entries of all streams of a token.
    pub(super) fn width(&self, hidden: usize) -> usize {
        self.count.saturating_mul(hidden)
    }

    /// Entries of a block's gates: one per stream for reading, one for writing, and one per pair of streams.
    fn gates(&self) -> usize {
        self.count.saturating_add(2).saturating_mul(self.count)
    }

    /// A row as every stream.
    pub(super) fn spread(&self, g: &mut GraphBuilder, x: &str) -> String {
        g.concat("streams", &vec![x; self.count], 1)
    }
}

/// The streams around one block.
#[derive(Clone, Debug)]
pub(super) struct Around {
    config: StreamConfig,
    matrix: Projection,
    scale: String,
    base: String,
}

/// How a block's result goes into the streams.
#[derive(Clone, Debug)]
pub(super) struct Gates {
    post: String,
    mix: String,
}

impl Around {
    /// `NAME_fn`, `NAME_scale` and `NAME_base`.
    ///
    /// # Errors
    /// The tensor that does not fit.
    pub(super) fn declare(
        t: &mut Tensors<'_>,
        name: &str,
        config: StreamConfig,
        hidden: usize,
    ) -> Result<Self, FamilyError> {
        Ok(Around {
            config,
            matrix: t.matrix(&format!("{name}_fn"), config.gates(), config.width(hidden))?,
            scale: t.plain(&format!("{name}_scale"), &[3])?,
            base: t.plain(&format!("{name}_base"), &[config.gates()])?,
        })
    }

    /// What the block reads of the streams, and how its result goes into them.
    pub(super) fn read(&self, g: &mut GraphBuilder, name: &str, streams: &str, norm_eps: f32) -> (String, Gates) {
        let StreamConfig { count, iterations, eps } = self.config;
        let normed = g.rms_norm(&format!("{name}_streams_norm"), streams, None, norm_eps, None);
        let x = self.matrix.apply(g, &format!("{name}_gates_proj"), &normed);
        let (scale, base) = (self.scale.clone(), self.base.clone());
        let op = StreamGates { x, scale, base, streams: count, iterations, eps };
        let [pre, post, mix] = g.stream_gates(&format!("{name}_gates"), op);
        (g.stream_collapse(&format!("{name}_in"), streams, count, Some(&pre)), Gates { post, mix })
    }
}

impl Gates {
    /// The streams behind a block that yields `y`.
    pub(super) fn update(self, g: &mut GraphBuilder, name: &str, streams: &str, y: String) -> String {
        g.stream_update(name, StreamUpdate { x: Some(streams.into()), y, post: self.post, mix: Some(self.mix) })
    }
}

/// What the last norm reads: one row of all streams.
#[derive(Clone, Debug)]
pub(super) struct Head {
    config: StreamConfig,
    matrix: Projection,
    scale: String,
    base: String,
}

impl Head {
    /// `output_hc_fn`, `output_hc_scale` and `output_hc_base`.
    ///
    /// # Errors
    /// The tensor that does not fit.
    pub(super) fn declare(t: &mut Tensors<'_>, config: StreamConfig, hidden: usize) -> Result<Self, FamilyError> {
        Ok(Head {
            config,
            matrix: t.matrix("output_hc_fn", config.count, config.width(hidden))?,
            scale: t.plain("output_hc_scale", &[1])?,
            base: t.plain("output_hc_base", &[config.count])?,
        })
    }

    pub(super) fn apply(&self, g: &mut GraphBuilder, streams: &str, norm_eps: f32) -> String {
        let normed = g.rms_norm("output_streams_norm", streams, None, norm_eps, None);
        let gates = self.matrix.apply(g, "output_gates_proj", &normed);
        let gates = g.affine("output_gates_scaled", &gates, Some(&self.scale), Some(&self.base));
        let x = g.activate("output_gates_act", &gates, Act::Sigmoid);
        let gates = g.push("output_gates", Op::Scale { x, factor: 1.0, offset: self.config.eps });
        g.stream_collapse("output_in", streams, self.config.count, Some(&gates))
    }
}
