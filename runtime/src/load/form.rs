//! The form of a weight, known without its value: what it takes in memory can be told before anything is read.

use bantam_gguf::GgmlType;
use bantam_graph::WeightExpr;

use super::expr::Fit;

/// Number format and shape of a weight's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightForm {
    /// Number format.
    pub ty: GgmlType,
    /// Row-major shape.
    pub shape: Vec<usize>,
    /// Whether it is computed and so is in memory of its own; otherwise it is a part of a file.
    pub computed: bool,
}

impl WeightForm {
    /// Bytes of the value; saturates.
    pub fn bytes(&self) -> u64 {
        let (row, rows) = self.shape.split_last().map_or((1, &[][..]), |(row, rows)| (*row, rows));
        let row = self.ty.row_bytes(row).unwrap_or(usize::MAX) as u64;
        rows.iter().fold(row, |bytes, extent| bytes.saturating_mul(*extent as u64))
    }

    /// Numbers in it; saturates.
    pub fn entries(&self) -> u64 {
        self.shape.iter().fold(1, |entries, extent| entries.saturating_mul(*extent as u64))
    }

    /// As f32, which is computed unless it is so already.
    fn decoded(self) -> Self {
        WeightForm { computed: self.computed || self.ty != GgmlType::F32, ty: GgmlType::F32, ..self }
    }

    fn computed(self) -> Self {
        WeightForm { computed: true, ..self }
    }
}

/// The form of an expression's value, as [`super::expr::evaluate`] would give it; `tensor` gives those of the checkpoint's
/// tensors.
pub(crate) fn form(expr: &WeightExpr, tensor: &dyn Fn(&str) -> Fit<WeightForm>) -> Fit<WeightForm> {
    let shape = || expr.shape(&|name| tensor(name).ok().map(|tensor| tensor.shape));
    match expr {
        WeightExpr::Tensor(name) => tensor(name),
        WeightExpr::Slice { of, axis, start, len } => {
            let value = form(of, tensor)?;
            let of_rows = axis + 1 == value.shape.len();
            let end = start.saturating_add(*len);
            let cuts_blocks = of_rows && [*start, end].iter().any(|at| value.ty.row_bytes(*at).is_none());
            let value = if cuts_blocks { value.decoded() } else { value };
            let outer = value.shape.iter().take(*axis).any(|extent| *extent != 1);
            let value = if outer { value.computed() } else { value };
            Ok(WeightForm { shape: shape()?, ..value })
        }
        WeightExpr::Reshape { of, shape: to } => {
            let value = form(of, tensor)?;
            let whole_rows = to.last().is_some_and(|len| value.ty.row_bytes(*len).is_some());
            let value = if whole_rows { value } else { value.decoded() };
            Ok(WeightForm { shape: shape()?, ..value })
        }
        WeightExpr::Permute { of, axes } => {
            let value = form(of, tensor)?;
            let rows_stay = axes.last().is_none_or(|last| last + 1 == axes.len());
            let value = if rows_stay { value } else { value.decoded() };
            Ok(WeightForm { shape: shape()?, ..value.computed() })
        }
        WeightExpr::Concat { of, .. } | WeightExpr::Stack(of) => {
            let parts = of.iter().map(|part| form(part, tensor)).collect::<Fit<Vec<_>>>()?;
            let first = parts.first().ok_or("nothing to put together")?;
            let alike = parts.iter().all(|part| part.ty == first.ty);
            let ty = if alike { first.ty } else { GgmlType::F32 };
            Ok(WeightForm { ty, shape: shape()?, computed: true })
        }
        WeightExpr::Affine { of, .. } | WeightExpr::Exp(of) => Ok(form(of, tensor)?.decoded().computed()),
    }
}
