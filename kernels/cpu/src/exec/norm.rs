//! Normalisation of runs of entries.

use std::ops::Range;

use bantam_graph::NormKind;

use super::{frame::Frame, sums::Dot};
use crate::{
    compile::ir::RunNorm,
    isa::Isa,
    simd::{Floats, Kernel, with_floats},
};

/// Normalises runs `runs` of all rows, whose entries `x` holds.
pub(crate) fn norm(frame: &Frame<'_>, norm: &RunNorm, x: &[f32], runs: Range<usize>, out: &mut [f32]) {
    let weight = norm.weight.map(|w| frame.weights.vectors[w].as_slice());
    for ((x, out), run) in x.chunks_exact(norm.group).zip(out.chunks_exact_mut(norm.group)).zip(runs) {
        // A weight as long as a row goes on over its runs.
        let weight = weight.map(|w| &w[run * norm.group % w.len()..][..norm.group]);
        apply(frame.isa, x, factor(frame.isa, x, norm), weight, out);
    }
}

/// What the entries of a run are multiplied by.
pub(crate) fn factor(isa: Isa, x: &[f32], norm: &RunNorm) -> f32 {
    let squares = with_floats(isa, Dot(x, x));
    let size = match norm.kind {
        NormKind::Rms => squares / x.len() as f32,
        NormKind::L2 => squares,
    };
    1.0 / (size + norm.eps).sqrt()
}

/// `x · factor ⊙ weight`.
pub(crate) fn apply(isa: Isa, x: &[f32], factor: f32, weight: Option<&[f32]>, out: &mut [f32]) {
    with_floats(isa, Scaled { x, factor, weight, out });
}

struct Scaled<'a> {
    x: &'a [f32],
    factor: f32,
    weight: Option<&'a [f32]>,
    out: &'a mut [f32],
}

impl Kernel for Scaled<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Floats>(self, _: S) {
        let Scaled { x, factor, weight, out } = self;
        match weight {
            Some(weight) => {
                for ((out, x), w) in out.iter_mut().zip(x).zip(weight) {
                    *out = x * factor * w;
                }
            }
            None => {
                for (out, x) in out.iter_mut().zip(x) {
                    *out = x * factor;
                }
            }
        }
    }
}
