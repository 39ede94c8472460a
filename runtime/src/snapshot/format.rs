//! The bytes of a snapshot, little-endian:
//!
//! ```text
//! magic "BANTAMST" · format u32 · key [32] · body length u64 · body · SHA-256 of all before [32]
//! body: tokens u32 n, n × u32
//!       pages u32 n, n × (group u32, index u32, tokens u32, bytes u64 n, n × u8)
//!       slot u8 (0: none), bytes u64 n, n × u8
//! ```

use sha2::{Digest, Sha256};

use super::{SavedPage, SavedState, SnapshotError, SnapshotKey};
use crate::cache::PagePlace;

const MAGIC: &[u8; 8] = b"BANTAMST";
const FORMAT: u32 = 1;
const SUM: usize = 32;

/// The bytes of a state.
pub(crate) fn encode(key: SnapshotKey, state: &SavedState) -> Vec<u8> {
    let pages: usize = state.pages.iter().map(|page| page.bytes.len() + 20).sum();
    let slot = state.slot.as_ref().map_or(0, Vec::len);
    let mut body = Vec::with_capacity(pages + slot + 4 * state.tokens.len() + 32);
    put_count(&mut body, state.tokens.len());
    state.tokens.iter().for_each(|token| body.extend(token.to_le_bytes()));
    put_count(&mut body, state.pages.len());
    for SavedPage { place, bytes } in &state.pages {
        put_count(&mut body, place.group);
        put_count(&mut body, place.index);
        put_count(&mut body, place.tokens);
        put_bytes(&mut body, bytes);
    }
    body.push(u8::from(state.slot.is_some()));
    put_bytes(&mut body, state.slot.as_deref().unwrap_or_default());

    let mut out = Vec::with_capacity(body.len() + 96);
    out.extend(MAGIC);
    out.extend(FORMAT.to_le_bytes());
    out.extend(key.0);
    put_bytes(&mut out, &body);
    let sum: [u8; SUM] = Sha256::digest(&out).into();
    out.extend(sum);
    out
}

/// Counts are of tokens and pages, which 32 bits hold by their own types.
fn put_count(out: &mut Vec<u8>, n: usize) {
    out.extend(u32::try_from(n).unwrap_or(u32::MAX).to_le_bytes());
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u64).to_le_bytes());
    out.extend(bytes);
}

/// The state in these bytes.
///
/// # Errors
/// If they are no snapshot, or of another format or key, or damaged.
pub(crate) fn decode(key: SnapshotKey, bytes: &[u8]) -> Result<SavedState, SnapshotError> {
    let mut input = Input(bytes);
    if input.take(MAGIC.len()).ok() != Some(MAGIC.as_slice()) {
        return Err(SnapshotError::NotASnapshot);
    }
    let found = input.u32()?;
    if found != FORMAT {
        return Err(SnapshotError::Version { found, expected: FORMAT });
    }
    let found = SnapshotKey(input.array()?);
    if found != key {
        return Err(SnapshotError::Foreign { expected: key, found });
    }
    let body = input.bytes()?;
    let sum: [u8; SUM] = input.array()?;
    let summed = bytes.len().saturating_sub(SUM);
    if !input.0.is_empty() || Some(sum) != bytes.get(..summed).map(|bytes| Sha256::digest(bytes).into()) {
        return Err(SnapshotError::Damaged("its checksum is that of other bytes"));
    }
    state(body)
}

fn state(body: &[u8]) -> Result<SavedState, SnapshotError> {
    let mut input = Input(body);
    let tokens = (0..input.u32()?).map(|_| input.u32()).collect::<Result<_, _>>()?;
    let pages = (0..input.u32()?).map(|_| input.page()).collect::<Result<_, _>>()?;
    let has_slot = input.array::<1>()? != [0];
    let slot = input.bytes()?.to_vec();
    if !input.0.is_empty() {
        return Err(SnapshotError::Damaged("it has bytes behind its end"));
    }
    Ok(SavedState { tokens, pages, slot: has_slot.then_some(slot) })
}

/// Bytes that are not read yet.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8], SnapshotError> {
        let (taken, rest) = self.0.split_at_checked(n).ok_or(SnapshotError::Damaged("it ends too early"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], SnapshotError> {
        let bytes = self.take(N)?;
        bytes.try_into().map_err(|_| SnapshotError::Damaged("it ends too early"))
    }

    fn u32(&mut self) -> Result<u32, SnapshotError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn count(&mut self) -> Result<usize, SnapshotError> {
        usize::try_from(self.u32()?).map_err(|_| SnapshotError::Damaged("a count is too large"))
    }

    fn bytes(&mut self) -> Result<&'a [u8], SnapshotError> {
        let n = u64::from_le_bytes(self.array()?);
        self.take(usize::try_from(n).unwrap_or(usize::MAX))
    }

    fn page(&mut self) -> Result<SavedPage, SnapshotError> {
        let place = PagePlace { group: self.count()?, index: self.count()?, tokens: self.count()? };
        Ok(SavedPage { place, bytes: self.bytes()?.to_vec() })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KEY: SnapshotKey = SnapshotKey([7; 32]);

    fn any_state() -> impl Strategy<Value = SavedState> {
        let bytes = || prop::collection::vec(any::<u8>(), 0..40);
        let page = (0..4_usize, 0..9_usize, 1..64_usize, bytes())
            .prop_map(|(group, index, tokens, bytes)| SavedPage { place: PagePlace { group, index, tokens }, bytes });
        let parts =
            (prop::collection::vec(any::<u32>(), 0..20), prop::collection::vec(page, 0..5), prop::option::of(bytes()));
        parts.prop_map(|(tokens, pages, slot)| SavedState { tokens, pages, slot })
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(state in any_state()) {
            prop_assert_eq!(decode(KEY, &encode(KEY, &state)).unwrap(), state);
        }

        #[test]
        fn damage_anywhere_is_noticed(state in any_state(), at in any::<prop::sample::Index>(), by in 1..=255_u8) {
            let mut bytes = encode(KEY, &state);
            let at = at.index(bytes.len());
            prop_assert!(decode(KEY, &bytes[..at]).is_err(), "cut off at {}", at);
            bytes[at] ^= by;
            prop_assert!(decode(KEY, &bytes).is_err(), "changed at {}", at);
        }
    }

    #[test]
    fn foreign_bytes_are_refused_by_name() {
        let bytes = encode(KEY, &SavedState::default());
        let other = SnapshotKey([8; 32]);
        assert_eq!(decode(other, &bytes), Err(SnapshotError::Foreign { expected: other, found: KEY }));
        assert_eq!(decode(KEY, b"GGUF"), Err(SnapshotError::NotASnapshot));
        let mut newer = bytes.clone();
        newer[8] = 9;
        assert_eq!(decode(KEY, &newer), Err(SnapshotError::Version { found: 9, expected: FORMAT }));
        let longer = [bytes.as_slice(), &[0]].concat();
        assert!(matches!(decode(KEY, &longer), Err(SnapshotError::Damaged(_))));
    }

    /// A count that promises more than there is must not be believed, even under a right checksum.
    #[test]
    fn counts_are_checked_against_what_is_there() {
        let mut out = MAGIC.to_vec();
        out.extend(FORMAT.to_le_bytes());
        out.extend(KEY.0);
        put_bytes(&mut out, &u32::MAX.to_le_bytes());
        let sum: [u8; SUM] = Sha256::digest(&out).into();
        out.extend(sum);
        assert_eq!(decode(KEY, &out), Err(SnapshotError::Damaged("it ends too early")));
    }
}
