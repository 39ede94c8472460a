//! The index of a saved tree: what its blobs are, and the tree.

use super::SnapshotError;
use crate::cache::{NodeImage, PageImage, TreeImage};

/// Stands for "none" where a number is expected.
const NONE: u32 = u32::MAX;

const RESUME: u8 = 1;
const VALUE: u8 = 2;

/// The bytes of a page or slot in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Blob {
    pub(super) bytes: u64,
    pub(super) sum: [u8; 32],
}

/// The bytes of an index.
pub(super) fn encode(blobs: &[Blob], image: &TreeImage) -> Vec<u8> {
    let mut out = Output(Vec::new());
    out.count(blobs.len());
    for blob in blobs {
        out.u64(blob.bytes);
        out.0.extend(blob.sum);
    }
    out.count(image.pages.len());
    for page in &image.pages {
        [page.group, page.tokens, page.source].into_iter().for_each(|n| out.count(n));
    }
    out.count(image.slots.len());
    image.slots.iter().for_each(|&source| out.count(source));
    out.count(image.nodes.len());
    image.nodes.iter().for_each(|node| out.node(node));
    out.0
}

/// What an index says, sound or not.
///
/// # Errors
/// If these bytes are no index.
pub(super) fn decode(bytes: &[u8]) -> Result<(Vec<Blob>, TreeImage), SnapshotError> {
    let mut input = Input(bytes);
    let blobs = input.list(|input| Ok(Blob { bytes: input.u64()?, sum: input.array()? }))?;
    let source = |input: &mut Input<'_>| {
        let source = input.number()?;
        if source < blobs.len() { Ok(source) } else { Err(SnapshotError::Damaged("it lacks a page")) }
    };
    let pages = input
        .list(|input| Ok(PageImage { group: input.number()?, tokens: input.number()?, source: source(input)? }))?;
    let slots = input.list(source)?;
    let nodes = input.list(Input::node)?;
    if !input.0.is_empty() {
        return Err(SnapshotError::Damaged("its index has bytes behind its end"));
    }
    Ok((blobs, TreeImage { nodes, pages, slots }))
}

struct Output(Vec<u8>);

impl Output {
    fn u64(&mut self, n: u64) {
        self.0.extend(n.to_le_bytes());
    }

    fn u32(&mut self, n: u32) {
        self.0.extend(n.to_le_bytes());
    }

    /// Counts and numbers are of tokens, nodes, pages and slots, which have 32 bits by their own types.
    fn count(&mut self, n: usize) {
        self.u32(u32::try_from(n).unwrap_or(NONE));
    }

    fn optional(&mut self, n: Option<usize>) {
        self.count(n.unwrap_or(NONE as usize));
    }

    fn node(&mut self, node: &NodeImage) {
        self.optional(node.parent);
        self.u64(node.namespace);
        self.u64(node.last_used);
        let value = if node.value.is_some() { VALUE } else { 0 };
        self.0.push(value | if node.resume { RESUME } else { 0 });
        if let Some((slot, used)) = node.value {
            self.count(slot);
            self.u64(used);
        }
        self.count(node.tokens.len());
        node.tokens.iter().for_each(|&token| self.u32(token));
        self.count(node.pages.len());
        for pages in &node.pages {
            self.count(pages.len());
            pages.iter().for_each(|&page| self.optional(page));
        }
    }
}

/// Bytes that are not read yet.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], SnapshotError> {
        let (taken, rest) =
            self.0.split_first_chunk::<N>().ok_or(SnapshotError::Damaged("its index ends too early"))?;
        self.0 = rest;
        Ok(*taken)
    }

    fn u64(&mut self) -> Result<u64, SnapshotError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn u32(&mut self) -> Result<u32, SnapshotError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn number(&mut self) -> Result<usize, SnapshotError> {
        usize::try_from(self.u32()?).map_err(|_| SnapshotError::Damaged("a number in its index is too large"))
    }

    fn optional(&mut self) -> Result<Option<usize>, SnapshotError> {
        Ok(Some(self.number()?).filter(|&n| n != NONE as usize))
    }

    /// A count, and so many of something. What is not there ends it, so that no memory is taken on a count's word.
    fn list<T>(&mut self, mut one: impl FnMut(&mut Self) -> Result<T, SnapshotError>) -> Result<Vec<T>, SnapshotError> {
        (0..self.u32()?).map(|_| one(self)).collect()
    }

    fn node(&mut self) -> Result<NodeImage, SnapshotError> {
        let (parent, namespace, last_used) = (self.optional()?, self.u64()?, self.u64()?);
        let [flags] = self.array()?;
        let value = match flags & VALUE {
            0 => None,
            _ => Some((self.number()?, self.u64()?)),
        };
        let tokens = self.list(Input::u32)?;
        let pages = self.list(|input| input.list(Input::optional))?;
        Ok(NodeImage { parent, namespace, tokens, resume: flags & RESUME != 0, last_used, pages, value })
    }
}
