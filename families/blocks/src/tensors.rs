//! Declaring weights that are tensors of the checkpoint, or parts of them.
//!
//! A tensor that would change the result but that the family does not apply is refused by name: leaving it out would make
//! the model silently wrong.

use bantam_family_api::{Checkpoint, FamilyError};
use bantam_graph::{GraphBuilder, WeightExpr};

/// Declares weights in a graph after checking them against the checkpoint. Names are given without the layer's prefix
/// and without `.weight`.
pub struct Tensors<'a> {
    checkpoint: &'a Checkpoint,
    graph: &'a mut GraphBuilder,
    /// What weights call the checkpoint's tensors by, before their name.
    file: &'static str,
    prefix: String,
}

/// Which of a model's checkpoints tensors lie in.
#[derive(Clone, Copy, Debug)]
pub enum Origin {
    /// The model's own.
    Model,
    /// That of a draft which comes in a file of its own.
    DraftFile,
}

/// A matrix and its bias, if the checkpoint has one.
#[derive(Clone, Debug, Default)]
pub struct Projection {
    weight: String,
    bias: Option<String>,
}

impl Projection {
    /// `x·Wᵀ (+ bias)`.
    pub fn apply(&self, g: &mut GraphBuilder, name: &str, x: &str) -> String {
        g.linear(name, x, &self.weight, self.bias.as_deref())
    }

    /// The same matrix with a bias of another name.
    pub fn with_bias(self, bias: String) -> Self {
        Projection { bias: Some(bias), ..self }
    }

    /// `x·Wᵀ` of each of `runs` equal runs of `x`; a bias is not applied.
    pub fn apply_to_runs(&self, g: &mut GraphBuilder, name: &str, x: &str, runs: usize) -> String {
        g.linear_runs(name, x, &self.weight, runs)
    }
}

impl<'a> Tensors<'a> {
    /// For tensors outside the layers.
    pub fn new(checkpoint: &'a Checkpoint, graph: &'a mut GraphBuilder) -> Self {
        Self::of(Origin::Model, checkpoint, graph)
    }

    /// As [`Tensors::new`], for any of the model's checkpoints.
    pub fn of(origin: Origin, checkpoint: &'a Checkpoint, graph: &'a mut GraphBuilder) -> Self {
        let file = match origin {
            Origin::Model => "",
            Origin::DraftFile => "draft.",
        };
        Tensors { checkpoint, graph, file, prefix: String::new() }
    }

    /// For the tensors `blk.LAYER.*`.
    pub fn layer(&mut self, layer: usize) -> Tensors<'_> {
        Tensors { checkpoint: self.checkpoint, graph: self.graph, file: self.file, prefix: format!("blk.{layer}.") }
    }

    fn full(&self, name: &str, part: &str) -> String {
        format!("{}{name}.{part}", self.prefix)
    }

    /// A weight that is a tensor, once that was checked.
    fn whole(&mut self, tensor: &str, shape: &[usize]) -> String {
        self.graph.tensor(&format!("{}{tensor}", self.file), shape)
    }

    /// A weight, called like a tensor, that is made of the checkpoint's tensors.
    fn made(&mut self, name: &str, shape: &[usize], expr: WeightExpr) -> String {
        self.graph.weight(&format!("{}{name}", self.file), shape, expr)
    }

    fn expr(&self, tensor: &str) -> WeightExpr {
        WeightExpr::Tensor(format!("{}{tensor}", self.file))
    }

    fn slice(&self, tensor: &str, axis: usize, start: usize, len: usize) -> WeightExpr {
        WeightExpr::Slice { of: Box::new(self.expr(tensor)), axis, start, len }
    }

    /// Whether the checkpoint has `NAME.weight`.
    pub fn has(&self, name: &str) -> bool {
        self.checkpoint.has(&self.full(name, "weight"))
    }

    /// `NAME.weight` of this shape, applied as it is.
    ///
    /// # Errors
    /// If it is missing or has another shape, or has a bias or scale beside it.
    pub fn plain(&mut self, name: &str, shape: &[usize]) -> Result<String, FamilyError> {
        self.refuse(name, "bias")?;
        self.declare(name, shape)
    }

    /// `NAME.weight` `[len]`, if the checkpoint has it.
    ///
    /// # Errors
    /// As [`Tensors::plain`].
    pub fn optional(&mut self, name: &str, len: usize) -> Result<Option<String>, FamilyError> {
        if self.has(name) { self.plain(name, &[len]).map(Some) } else { Ok(None) }
    }

    /// The matrix `NAME.weight` `[rows, cols]` and, where the checkpoint has it, `NAME.bias` `[rows]`.
    ///
    /// # Errors
    /// If one is missing or has another shape, or has a scale beside it.
    pub fn matrix(&mut self, name: &str, rows: usize, cols: usize) -> Result<Projection, FamilyError> {
        let weight = self.declare(name, &[rows, cols])?;
        let bias = self.full(name, "bias");
        if !self.checkpoint.has(&bias) {
            return Ok(Projection { weight, bias: None });
        }
        self.checkpoint.expect_weights(&bias, &[rows])?;
        Ok(Projection { weight, bias: Some(self.whole(&bias, &[rows])) })
    }

    /// The matrix `NAME.weight` `[rows, cols]` alone: what stands beside it is the caller's to apply or refuse.
    ///
    /// # Errors
    /// If it is missing or has another shape.
    pub fn bare_matrix(&mut self, name: &str, rows: usize, cols: usize) -> Result<Projection, FamilyError> {
        let weight = self.exactly(&format!("{name}.weight"), &[rows, cols])?;
        Ok(Projection { weight, bias: None })
    }

    /// The tensor of this name, its ending included, of this shape.
    ///
    /// # Errors
    /// If it is missing or has another shape.
    pub fn exactly(&mut self, name: &str, shape: &[usize]) -> Result<String, FamilyError> {
        let tensor = format!("{}{name}", self.prefix);
        self.checkpoint.expect_weights(&tensor, shape)?;
        Ok(self.whole(&tensor, shape))
    }

    /// As [`Tensors::exactly`], every entry times `factor`.
    ///
    /// # Errors
    /// As [`Tensors::exactly`].
    pub fn exactly_times(&mut self, name: &str, shape: &[usize], factor: f32) -> Result<String, FamilyError> {
        let tensor = format!("{}{name}", self.prefix);
        self.checkpoint.expect_weights(&tensor, shape)?;
        let of = Box::new(self.expr(&tensor));
        Ok(self.made(&tensor, shape, WeightExpr::Affine { of, scale: factor, offset: 0.0 }))
    }

    /// The numbers of the tensor of this name, its ending included, in `shape`. The checkpoint has them as `stored`.
    ///
    /// # Errors
    /// If it is missing or has another shape.
    pub fn reshaped(&mut self, name: &str, stored: &[usize], shape: &[usize]) -> Result<String, FamilyError> {
        let tensor = format!("{}{name}", self.prefix);
        self.checkpoint.expect_weights(&tensor, stored)?;
        let of = Box::new(self.expr(&tensor));
        Ok(self.made(&tensor, shape, WeightExpr::Reshape { of, shape: shape.into() }))
    }

    /// The integers `NAME.weight` of this shape.
    ///
    /// # Errors
    /// If it is missing, has another shape, or holds no integers.
    pub fn integers(&mut self, name: &str, shape: &[usize]) -> Result<String, FamilyError> {
        const TYPE: &str = "I32";
        let tensor = self.full(name, "weight");
        self.checkpoint.expect(&tensor, shape)?;
        match self.checkpoint.tensors.get(&tensor) {
            Some(meta) if meta.r#type != TYPE => {
                Err(FamilyError::Tensor { tensor, expected: format!("type {TYPE}"), found: meta.r#type.clone() })
            }
            _ => Ok(self.whole(&tensor, shape)),
        }
    }

    /// Columns of the matrix `NAME.weight` of this layer as the checkpoint has them; `None` if it is missing or no matrix.
    pub fn cols(&self, name: &str) -> Option<usize> {
        match *self.checkpoint.shape(&self.full(name, "weight")).ok()? {
            [_, cols] => Some(cols),
            _ => None,
        }
    }

    /// Rows of `NAME.weight` of this layer as the checkpoint has them; `None` if it is missing or no matrix.
    pub fn rows(&self, name: &str) -> Option<usize> {
        match *self.checkpoint.shape(&self.full(name, "weight")).ok()? {
            [rows, _] => Some(rows),
            _ => None,
        }
    }

    /// Matrices that lie one after another in the rows of `FUSED.weight`, and their biases in `FUSED.bias`.
    ///
    /// # Errors
    /// If one is missing or has another shape, or has a scale beside it.
    pub fn split_rows<const N: usize>(
        &mut self,
        fused: &str,
        parts: [(&str, usize); N],
        cols: usize,
    ) -> Result<[Projection; N], FamilyError> {
        self.refuse(fused, "scale")?;
        let total = parts.iter().fold(0_usize, |sum, (_, rows)| sum.saturating_add(*rows));
        let (weight, bias) = (self.full(fused, "weight"), self.full(fused, "bias"));
        self.checkpoint.expect_weights(&weight, &[total, cols])?;
        let has_bias = self.checkpoint.has(&bias);
        if has_bias {
            self.checkpoint.expect_weights(&bias, &[total])?;
        }
        let mut start = 0;
        Ok(parts.map(|(name, rows)| {
            let part = self.full(name, "weight");
            let part_bias = self.full(name, "bias");
            let projection = Projection {
                weight: self.made(&part, &[rows, cols], self.slice(&weight, 0, start, rows)),
                bias: has_bias.then(|| self.made(&part_bias, &[rows], self.slice(&bias, 0, start, rows))),
            };
            start += rows;
            projection
        }))
    }

    /// Matrices of their own; or all in the rows of `FUSED.weight`, where the checkpoint has that.
    ///
    /// # Errors
    /// If one is missing or has another shape, or has a scale beside it.
    pub fn split_or_fused<const N: usize>(
        &mut self,
        fused: &str,
        parts: [(&str, usize); N],
        cols: usize,
    ) -> Result<[Projection; N], FamilyError> {
        if self.has(fused) {
            return self.split_rows(fused, parts, cols);
        }
        let mut found = parts.map(|_| Projection::default());
        for (projection, (name, rows)) in found.iter_mut().zip(parts) {
            *projection = self.matrix(name, rows, cols)?;
        }
        Ok(found)
    }

    /// The gate and up matrices of all experts, `[experts, ffn, cols]` each, which lie one after the other in each
    /// expert's rows of `FUSED.weight`.
    ///
    /// # Errors
    /// As [`Tensors::plain`].
    pub fn split_experts(
        &mut self,
        fused: &str,
        parts: [&str; 2],
        [experts, ffn, cols]: [usize; 3],
    ) -> Result<[String; 2], FamilyError> {
        self.refuse(fused, "bias")?;
        self.refuse(fused, "scale")?;
        let tensor = self.full(fused, "weight");
        self.checkpoint.expect_weights(&tensor, &[experts, ffn.saturating_mul(2), cols])?;
        let mut start = 0;
        Ok(parts.map(|name| {
            let part = self.full(name, "weight");
            let part = self.made(&part, &[experts, ffn, cols], self.slice(&tensor, 1, start, ffn));
            start += ffn;
            part
        }))
    }

    fn declare(&mut self, name: &str, shape: &[usize]) -> Result<String, FamilyError> {
        self.refuse(name, "scale")?;
        let weight = self.full(name, "weight");
        self.checkpoint.expect_weights(&weight, shape)?;
        Ok(self.whole(&weight, shape))
    }

    /// Fails if there is `NAME.PART`, which would go unapplied.
    ///
    /// # Errors
    /// The tensor's name.
    pub fn refuse(&self, name: &str, part: &str) -> Result<(), FamilyError> {
        let tensor = self.full(name, part);
        if self.checkpoint.has(&tensor) {
            return Err(FamilyError::Unsupported(format!(
                "tensor `{tensor}` is not supported for architecture `{}`",
                self.checkpoint.architecture
            )));
        }
        Ok(())
    }
}

/// The matrix from the last hidden row to the logits: `output`, or the embedding table where there is none (tied).
///
/// # Errors
/// As [`Tensors::matrix`].
pub fn output_matrix(t: &mut Tensors<'_>, vocab: usize, hidden: usize) -> Result<Projection, FamilyError> {
    let name = if t.has("output") { "output" } else { "token_embd" };
    t.matrix(name, vocab, hidden)
}
