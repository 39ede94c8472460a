//! What tells one checkpoint from another without reading all of it.

use sha2::{Digest, Sha256};

use super::LoadedModel;

/// Bytes of a tensor that are looked at, at its start and in its middle.
const SAMPLE: usize = 256;

/// A hash over the names, types, shapes and sampled bytes of all tensors.
pub(crate) fn fingerprint(loaded: &LoadedModel) -> Vec<u8> {
    let mut hash = Sha256::new();
    for tensor in loaded.file.tensors() {
        hash.update(format!("{} {} {:?} {}", tensor.name, tensor.ty.name(), tensor.shape, tensor.bytes));
        // A tensor that lies outside its file is refused when its weight is loaded.
        let bytes = loaded.file.tensor_bytes(tensor).unwrap_or_default();
        for sample in [bytes, bytes.split_at(bytes.len() / 2).1] {
            hash.update(sample.get(..SAMPLE).unwrap_or(sample));
        }
    }
    hash.finalize().to_vec()
}
