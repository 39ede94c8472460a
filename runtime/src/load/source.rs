//! The weights of a GGUF file, as backends ask for them.

use std::{collections::HashSet, sync::Arc};

use bantam_backend::{SharedBytes, WeightData, WeightError, WeightSource};
use bantam_gguf::{GgufFile, TensorInfo};
use bantam_graph::{Graph, Weight};

use super::{
    checkpoint::row_major_shape,
    expr::{Fit, evaluate, without_leading_ones},
};

/// Evaluates weights over the tensors of a file. Plain tensors and contiguous parts of them are not copied.
#[derive(Clone, Debug)]
pub struct GgufSource {
    file: Arc<GgufFile>,
}

/// One tensor's bytes in the mapped file.
struct TensorBytes {
    file: Arc<GgufFile>,
    tensor: TensorInfo,
}

impl AsRef<[u8]> for TensorBytes {
    fn as_ref(&self) -> &[u8] {
        self.file.tensor_bytes(&self.tensor).unwrap_or_default()
    }
}

impl GgufSource {
    /// The weights of `file`.
    pub fn new(file: Arc<GgufFile>) -> Self {
        GgufSource { file }
    }

    /// Names of the file's tensors that no weight of the graph reads, in file order.
    pub fn unused(&self, graph: &Graph) -> Vec<String> {
        let used: HashSet<&str> = graph.weights.iter().flat_map(|weight| weight.expr.tensors()).collect();
        let names = self.file.tensors().iter().map(|tensor| &tensor.name);
        names.filter(|name| !used.contains(name.as_str())).cloned().collect()
    }

    fn tensor(&self, name: &str) -> Fit<WeightData> {
        let tensor = self.file.tensor(name).ok_or_else(|| format!("tensor `{name}` is not in the file"))?;
        let owner = Arc::new(TensorBytes { file: Arc::clone(&self.file), tensor: tensor.clone() });
        let bytes = SharedBytes::new(owner, 0..tensor.bytes)
            .ok_or_else(|| format!("tensor `{name}` does not lie in the file"))?;
        Ok(WeightData { ty: tensor.ty, shape: row_major_shape(tensor), bytes })
    }
}

impl WeightSource for GgufSource {
    fn load(&self, weight: &Weight) -> Result<WeightData, WeightError> {
        let refused = |why| WeightError { weight: weight.name.clone(), why };
        let found = evaluate(&weight.expr, &|name| self.tensor(name)).map_err(refused)?;
        if without_leading_ones(&found.shape) != without_leading_ones(&weight.shape) {
            let tensors = weight.expr.tensors().join("`, `");
            let (expected, found) = (&weight.shape, &found.shape);
            return Err(refused(format!("expected shape {expected:?}, found {found:?} in `{tensors}`")));
        }
        Ok(WeightData { shape: weight.shape.clone(), ..found })
    }

    fn release(&self, weight: &Weight) {
        let tensors = weight.expr.tensors().into_iter().filter_map(|name| self.file.tensor(name));
        for tensor in tensors {
            if let Err(e) = self.file.release_pages(tensor) {
                tracing::debug!("pages stay in memory: {e}");
            }
        }
    }
}
