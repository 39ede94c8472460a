//! State of sequences as bytes, out of a running engine and into one.

use super::{Engine, Refusal};
use crate::{
    actors::{model::ModelMessage, scheduler::Transfer},
    snapshot::{SnapshotError, decode, encode},
};

impl Engine {
    /// The cached state of these tokens, or of as many of the first of them as are cached, for [`Engine::restore`] of an
    /// engine of the same model and configuration, in this process or another.
    ///
    /// # Errors
    /// If none of it is cached.
    pub async fn save(&self, tokens: Vec<u32>) -> Result<Vec<u8>, SnapshotError> {
        let (info, model) = self.link().map_err(|why| refused(&why))?;
        let state = ractor::call!(model, |reply| ModelMessage::Transfer(Transfer::Save { tokens, reply }))
            .map_err(|e| SnapshotError::Failed(e.to_string()))??;
        blocking(move || encode(info.snapshot_key, &state)).await?
    }

    /// Makes saved state findable for requests that begin with its tokens. Returns how many these are.
    ///
    /// # Errors
    /// If the bytes are not a snapshot of this model and configuration, or damaged, or there is no memory for the state.
    pub async fn restore(&self, bytes: Vec<u8>) -> Result<usize, SnapshotError> {
        let (info, model) = self.link().map_err(|why| refused(&why))?;
        let state = blocking(move || decode(info.snapshot_key, &bytes)).await??;
        ractor::call!(model, |reply| ModelMessage::Transfer(Transfer::Restore { state, reply }))
            .map_err(|e| SnapshotError::Failed(e.to_string()))?
    }
}

fn refused(why: &Refusal) -> SnapshotError {
    SnapshotError::Failed(why.to_string())
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, SnapshotError> {
    tokio::task::spawn_blocking(work).await.map_err(|e| SnapshotError::Failed(e.to_string()))
}
