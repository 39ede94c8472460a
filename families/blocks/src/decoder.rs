//! What stands around the layers of a decoder, and the decoder whose layers are the plainest: attention and feed-forward,
//! each behind a norm.

use bantam_family_api::FamilyError;
use bantam_graph::{Act, GraphBuilder, InputSource};

use super::{
    attention::{Attending, AttentionShape, AttentionWeights, attention},
    config::DecoderSizes,
    ffn::{Ffn, FfnShape, ffn},
    rope::RopeConfig,
    tensors::{Projection, Tensors, output_matrix},
    wanted_rows,
};

/// The weights of a decoder, its layers' being `L`.
#[derive(Clone, Debug)]
pub struct Decoder<L> {
    /// The embedding table.
    pub embed: String,
    /// The layers.
    pub layers: Vec<L>,
    /// The norm in front of the output matrix.
    pub output_norm: String,
    /// From the last row to the logits.
    pub output: Projection,
}

impl<L> Decoder<L> {
    /// `token_embd`, the tensors of so many layers, `output_norm`, and `output` or the embedding table in its place.
    ///
    /// # Errors
    /// The tensor that does not fit.
    pub fn declare(
        t: &mut Tensors<'_>,
        [vocab, hidden]: [usize; 2],
        layers: usize,
        layer: impl Fn(&mut Tensors<'_>, usize) -> Result<L, FamilyError>,
    ) -> Result<Self, FamilyError> {
        Ok(Decoder {
            embed: t.plain("token_embd", &[vocab, hidden])?,
            layers: (0..layers).map(|i| layer(&mut t.layer(i), i)).collect::<Result<_, _>>()?,
            output_norm: t.plain("output_norm", &[hidden])?,
            output: output_matrix(t, vocab, hidden)?,
        })
    }
}

/// The weights of a plain layer.
#[derive(Clone, Debug)]
pub struct PlainLayer {
    attn_norm: String,
    attn: AttentionWeights,
    ffn_norm: String,
    ffn: Ffn,
}

impl PlainLayer {
    /// `attn_norm`, `ffn_norm`, and the tensors of attention and feed-forward.
    ///
    /// # Errors
    /// The tensor that does not fit.
    pub fn declare(
        t: &mut Tensors<'_>,
        sizes: &DecoderSizes,
        shape: &FfnShape,
        i: usize,
        head_norms: bool,
    ) -> Result<Self, FamilyError> {
        let hidden = sizes.hidden;
        let attn = AttentionWeights::declare(t, AttentionShape::of(sizes, i))?;
        Ok(PlainLayer {
            attn_norm: t.plain("attn_norm", &[hidden])?,
            attn: if head_norms { attn.with_head_norms(t)? } else { attn },
            ffn_norm: t.plain("ffn_norm", &[hidden])?,
            ffn: Ffn::declare(t, shape, i, hidden)?,
        })
    }
}

/// How all layers of a plain decoder attend.
#[derive(Clone, Copy, Debug)]
pub struct PlainAttention<'a> {
    /// Rotation of queries and keys.
    pub rope: &'a RopeConfig,
    /// Weight with a rotary divisor per pair.
    pub rope_factors: Option<&'a str>,
    /// Factor on the scores.
    pub scale: f32,
}

/// The forward pass of a plain decoder; yields the logits.
pub fn plain(
    g: &mut GraphBuilder,
    w: &Decoder<PlainLayer>,
    norm_eps: f32,
    PlainAttention { rope, rope_factors, scale }: PlainAttention<'_>,
) -> String {
    let ids = g.input("tokens", InputSource::TokenIds);
    let positions = g.input("positions", InputSource::Positions);
    let how = Attending { positions: &positions, rope: Some(rope), rope_factors, scale, window: None, norm_eps };
    let mut x = g.embed("embed", &ids, &w.embed, 1.0);
    for (i, layer) in w.layers.iter().enumerate() {
        g.layer(Some(i));
        let h = g.rms_norm("attn_norm", &x, Some(&layer.attn_norm), norm_eps, None);
        let mut a = attention(g, &h, &layer.attn, how);
        if i + 1 == w.layers.len() {
            [x, a] = wanted_rows(g, [("residual_rows", &x), ("attn_rows", &a)]);
        }
        x = g.add("attn_residual", &x, &a);
        let h = g.rms_norm("ffn_norm", &x, Some(&layer.ffn_norm), norm_eps, None);
        let f = ffn(g, &h, &layer.ffn, Act::Silu);
        x = g.add("layer_out", &x, &f);
    }
    g.layer(None);
    let h = g.rms_norm("output_norm", &x, Some(&w.output_norm), norm_eps, None);
    w.output.apply(g, "logits", &h)
}
