//! The state of one sequence as bytes: a saved tree with one node.

use std::io::Cursor;

use super::{
    SavedPage, SavedState, SnapshotError, SnapshotKey,
    format::{Reader, Writer},
};
use crate::cache::{NodeImage, PageImage, PagePlace, TreeImage};

/// The bytes of a state.
///
/// # Errors
/// If there is no memory for them.
pub(crate) fn encode(key: SnapshotKey, state: &SavedState) -> Result<Vec<u8>, SnapshotError> {
    let mut writer = Writer::new(key, Vec::new())?;
    let mut image = TreeImage::default();
    let mut node = NodeImage { tokens: state.tokens.clone(), resume: state.slot.is_some(), ..NodeImage::default() };
    for (source, SavedPage { place, bytes }) in state.pages.iter().enumerate() {
        writer.blob(bytes)?;
        image.pages.push(PageImage { group: place.group, tokens: place.tokens, source });
        let groups = node.pages.len().max(place.group + 1);
        node.pages.resize(groups, Vec::new());
        let pages = &mut node.pages[place.group];
        pages.resize(pages.len().max(place.index + 1), None);
        pages[place.index] = Some(source);
    }
    if let Some(slot) = &state.slot {
        writer.blob(slot)?;
        image.slots.push(state.pages.len());
        node.value = Some((0, 0));
    }
    image.nodes.push(node);
    Ok(writer.finish(&image)?)
}

/// The state in these bytes.
///
/// # Errors
/// If they are no saved sequence, or of another format or key, or damaged.
pub(crate) fn decode(key: SnapshotKey, bytes: &[u8]) -> Result<SavedState, SnapshotError> {
    let (reader, image) = Reader::open(key, Cursor::new(bytes))?;
    let mut blobs = Vec::new();
    reader.blobs(|_, bytes| {
        blobs.push(bytes.to_vec());
        Ok(())
    })?;
    let TreeImage { mut nodes, pages, slots } = image;
    let (Some(node), true) = (nodes.pop(), nodes.is_empty() && slots.len() < 2) else {
        return Err(SnapshotError::Damaged("it is not of one sequence"));
    };
    let mut blob = |source: usize| std::mem::take(&mut blobs[source]);
    let mut state = SavedState { tokens: node.tokens, ..SavedState::default() };
    for (group, held) in node.pages.iter().enumerate() {
        for (index, number) in held.iter().enumerate().filter_map(|(index, number)| Some((index, (*number)?))) {
            let page = pages.get(number).ok_or(SnapshotError::Damaged("it lacks a page"))?;
            let place = PagePlace { group, index, tokens: page.tokens };
            state.pages.push(SavedPage { place, bytes: blob(page.source) });
        }
    }
    state.slot = slots.first().map(|&source| blob(source));
    Ok(state)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KEY: SnapshotKey = SnapshotKey([7; 32]);

    /// Pages as a sequence has them: group by group, each with those from some index on.
    fn any_state() -> impl Strategy<Value = SavedState> {
        let bytes = || prop::collection::vec(any::<u8>(), 0..40);
        let group = (0..4_usize, prop::collection::vec((1..64_usize, bytes()), 0..4));
        let parts =
            (prop::collection::vec(any::<u32>(), 0..20), prop::collection::vec(group, 0..3), prop::option::of(bytes()));
        parts.prop_map(|(tokens, groups, slot)| {
            let mut pages = Vec::new();
            for (group, (first, held)) in groups.into_iter().enumerate() {
                for (index, (tokens, bytes)) in held.into_iter().enumerate() {
                    pages.push(SavedPage { place: PagePlace { group, index: first + index, tokens }, bytes });
                }
            }
            SavedState { tokens, pages, slot }
        })
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(state in any_state()) {
            prop_assert_eq!(decode(KEY, &encode(KEY, &state).unwrap()).unwrap(), state);
        }

        #[test]
        fn damage_anywhere_is_noticed(state in any_state(), at in any::<prop::sample::Index>(), by in 1..=255_u8) {
            let mut bytes = encode(KEY, &state).unwrap();
            let at = at.index(bytes.len());
            prop_assert!(decode(KEY, &bytes[..at]).is_err(), "cut off at {}", at);
            bytes[at] ^= by;
            prop_assert!(decode(KEY, &bytes).is_err(), "changed at {}", at);
        }
    }

    #[test]
    fn foreign_bytes_are_refused_by_name() {
        let bytes = encode(KEY, &SavedState::default()).unwrap();
        let other = SnapshotKey([8; 32]);
        assert_eq!(decode(other, &bytes), Err(SnapshotError::Foreign { expected: other, found: KEY }));
        assert_eq!(decode(KEY, b"GGUF"), Err(SnapshotError::NotASnapshot));
        assert_eq!(decode(KEY, b""), Err(SnapshotError::NotASnapshot));
        let mut newer = bytes.clone();
        newer[8] = 9;
        assert_eq!(decode(KEY, &newer), Err(SnapshotError::Version { found: 9, expected: 1 }));
        let longer = [bytes.as_slice(), &[0]].concat();
        assert!(matches!(decode(KEY, &longer), Err(SnapshotError::Damaged(_))));
    }
}
