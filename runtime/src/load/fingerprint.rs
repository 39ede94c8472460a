//! What tells one checkpoint from another without reading all of it.

use sha2::{Digest, Sha256};

use super::{LoadedModel, ModelFiles};

/// Bytes of a tensor that are looked at, at its start and in its middle.
const SAMPLE: usize = 256;

/// A hash over the names, types, shapes and sampled bytes of all tensors.
pub(crate) fn fingerprint(loaded: &LoadedModel) -> Vec<u8> {
    let mut hash = Sha256::new();
    match &loaded.files {
        ModelFiles::Gguf(file) => {
            for tensor in file.tensors() {
                hash.update(format!("{} {} {:?} {}", tensor.name, tensor.ty.name(), tensor.shape, tensor.bytes));
                // A tensor that lies outside its file is refused when its weight is loaded.
                sample(&mut hash, file.tensor_bytes(tensor).unwrap_or_default());
            }
        }
        ModelFiles::Directory(directory) => {
            for (name, tensor) in directory.tensors.iter() {
                hash.update(format!("{name} {} {:?} {}", tensor.dtype, tensor.shape, tensor.bytes()));
                sample(&mut hash, tensor.raw());
            }
        }
    }
    hash.finalize().to_vec()
}

fn sample(hash: &mut Sha256, bytes: &[u8]) {
    for sample in [bytes, bytes.split_at(bytes.len() / 2).1] {
        hash.update(sample.get(..SAMPLE).unwrap_or(sample));
    }
}
