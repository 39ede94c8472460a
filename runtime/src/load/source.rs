//! The weights of a model's files, as backends ask for them.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use bantam_backend::{SharedBytes, WeightData, WeightError, WeightSource};
use bantam_gguf::{GgufFile, TensorInfo};
use bantam_graph::{Graph, Weight, WeightExpr};

use super::{
    checkpoint::row_major_shape,
    expr::{Fit, evaluate, without_leading_ones},
    form::{WeightForm, form},
    safetensors::SafetensorsFiles,
};

/// Evaluates weights over the tensors of a model's files. Plain tensors and contiguous parts of them are not copied.
#[derive(Clone, Debug)]
pub struct ModelSource {
    files: Files,
}

#[derive(Clone, Debug)]
enum Files {
    Gguf(Arc<GgufFile>),
    /// The tensors that weights are made of, each made of those of the files.
    Imported(Arc<SafetensorsFiles>, BTreeMap<String, WeightExpr>),
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

impl ModelSource {
    /// The weights of a GGUF file.
    pub fn of_gguf(file: Arc<GgufFile>) -> Self {
        ModelSource { files: Files::Gguf(file) }
    }

    /// The weights of safetensors files, in which each of `tensors` is made of theirs.
    pub fn imported(files: Arc<SafetensorsFiles>, tensors: BTreeMap<String, WeightExpr>) -> Self {
        ModelSource { files: Files::Imported(files, tensors) }
    }

    /// Names of the files' tensors that no weight of these graphs reads, in file order.
    pub fn unused<'g>(&self, graphs: impl IntoIterator<Item = &'g Graph>) -> Vec<String> {
        let weights = graphs.into_iter().flat_map(|graph| &graph.weights);
        let used: HashSet<&str> = weights.flat_map(|weight| self.read_by(weight)).collect();
        let names: Vec<&str> = match &self.files {
            Files::Gguf(file) => file.tensors().iter().map(|tensor| tensor.name.as_str()).collect(),
            Files::Imported(files, _) => files.iter().map(|(name, _)| name).collect(),
        };
        names.into_iter().filter(|name| !used.contains(name)).map(Into::into).collect()
    }

    /// The files' tensors that a weight is made of.
    fn read_by<'s>(&'s self, weight: &'s Weight) -> Vec<&'s str> {
        let names = weight.expr.tensors();
        match &self.files {
            Files::Gguf(_) => names,
            Files::Imported(_, tensors) => {
                names.into_iter().filter_map(|name| tensors.get(name)).flat_map(WeightExpr::tensors).collect()
            }
        }
    }

    /// The form in which [`WeightSource::load`] gives a weight; nothing but headers is read.
    ///
    /// # Errors
    /// A missing tensor, another shape, a format that the expression cannot be computed in.
    pub fn form(&self, weight: &Weight) -> Result<WeightForm, WeightError> {
        let refused = |why| WeightError { weight: weight.name.clone(), why };
        let found = form(&weight.expr, &|name| self.tensor_form(name)).map_err(refused)?;
        match misshapen(weight, &found.shape) {
            Some(why) => Err(refused(why)),
            None => Ok(WeightForm { shape: weight.shape.clone(), ..found }),
        }
    }

    fn tensor_form(&self, name: &str) -> Fit<WeightForm> {
        match &self.files {
            Files::Gguf(file) => {
                let tensor = file.tensor(name).ok_or_else(|| not_there(name))?;
                Ok(WeightForm { ty: tensor.ty, shape: row_major_shape(tensor), computed: false })
            }
            Files::Imported(files, tensors) => {
                let expr = tensors.get(name).ok_or_else(|| not_there(name))?;
                form(expr, &|name| files.tensor(name).ok_or_else(|| not_there(name))?.form(name))
            }
        }
    }

    fn tensor(&self, name: &str) -> Fit<WeightData> {
        match &self.files {
            Files::Gguf(file) => {
                let tensor = file.tensor(name).ok_or_else(|| not_there(name))?;
                let owner = Arc::new(TensorBytes { file: Arc::clone(file), tensor: tensor.clone() });
                let bytes = SharedBytes::new(owner, 0..tensor.bytes)
                    .ok_or_else(|| format!("tensor `{name}` does not lie in the file"))?;
                Ok(WeightData { ty: tensor.ty, shape: row_major_shape(tensor), bytes })
            }
            Files::Imported(files, tensors) => {
                let expr = tensors.get(name).ok_or_else(|| not_there(name))?;
                evaluate(expr, &|name| files.tensor(name).ok_or_else(|| not_there(name))?.data(name))
            }
        }
    }
}

/// What is wrong with a weight whose value has another shape than its graph says.
fn misshapen(weight: &Weight, found: &[usize]) -> Option<String> {
    let expected = &weight.shape;
    let tensors = weight.expr.tensors().join("`, `");
    (without_leading_ones(found) != without_leading_ones(expected))
        .then(|| format!("expected shape {expected:?}, found {found:?} in `{tensors}`"))
}

fn not_there(name: &str) -> String {
    format!("tensor `{name}` is not in the file")
}

impl WeightSource for ModelSource {
    fn load(&self, weight: &Weight) -> Result<WeightData, WeightError> {
        let refused = |why| WeightError { weight: weight.name.clone(), why };
        let found = evaluate(&weight.expr, &|name| self.tensor(name)).map_err(refused)?;
        if let Some(why) = misshapen(weight, &found.shape) {
            return Err(refused(why));
        }
        Ok(WeightData { shape: weight.shape.clone(), ..found })
    }

    fn release(&self, weight: &Weight) {
        for name in self.read_by(weight) {
            let released = match &self.files {
                Files::Gguf(file) => {
                    file.tensor(name).map(|tensor| file.release_pages(tensor).map_err(|e| e.to_string()))
                }
                Files::Imported(files, _) => files.tensor(name).map(|entry| entry.release().map_err(|e| e.to_string())),
            };
            if let Some(Err(e)) = released {
                tracing::debug!("pages stay in memory: {e}");
            }
        }
    }
}
