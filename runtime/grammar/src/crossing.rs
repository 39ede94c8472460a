//! Tokens that complete a mark and go on behind it.
//!
//! While a model writes freely nothing is masked, and a mark may end inside a token. What stands behind it there must fit
//! the grammar that begins with the mark. The few tokens with which it would not are known beforehand.

use toktrie::{SimpleVob, TokTrie, TrieNode};

use crate::Vocabulary;
use crate::watch::{Progress, Seen, Watch};

/// For each progress of `watch` the tokens that are allowed, where they are not those of `usual`, or all without that.
/// `fits` says whether a text may stand behind a mark.
pub(crate) fn masks(
    vocabulary: &Vocabulary,
    watch: &Watch,
    usual: Option<&SimpleVob>,
    mut fits: impl FnMut(usize, &[u8]) -> bool,
) -> Vec<Option<SimpleVob>> {
    let around = around(vocabulary, watch);
    let mask = |progress| {
        let mut forbidden = through(vocabulary.trie(), watch, progress);
        forbidden.extend_from_slice(&around);
        forbidden.retain(|&token| is_misfit(vocabulary, watch, progress, token, &mut fits));
        without(vocabulary, usual, &forbidden)
    };
    watch.all_progress().map(mask).collect()
}

fn without(vocabulary: &Vocabulary, usual: Option<&SimpleVob>, forbidden: &[u32]) -> Option<SimpleVob> {
    if forbidden.is_empty() {
        return None;
    }
    let mut mask = usual.cloned().unwrap_or_else(|| vocabulary.all());
    forbidden.iter().for_each(|&token| mask.disallow_token(token));
    Some(mask)
}

fn is_misfit(
    vocabulary: &Vocabulary,
    watch: &Watch,
    progress: Progress,
    token: u32,
    fits: &mut impl FnMut(usize, &[u8]) -> bool,
) -> bool {
    let bytes = vocabulary.bytes(token);
    match watch.feed(progress, bytes) {
        Seen::Found { mark, behind } if behind > 0 => {
            !fits(mark, bytes.get(bytes.len() - behind..).unwrap_or_default())
        }
        _ => false,
    }
}

/// Tokens that have a whole mark inside and more behind it.
fn around(vocabulary: &Vocabulary, watch: &Watch) -> Vec<u32> {
    let size = u32::try_from(vocabulary.trie().vocab_size()).unwrap_or(u32::MAX);
    let crosses = |&id: &u32| {
        let bytes = vocabulary.bytes(id);
        let shortest = watch.marks().iter().map(Vec::len).min().unwrap_or(usize::MAX);
        bytes.len() > shortest
            && matches!(watch.feed(Progress::default(), bytes), Seen::Found { behind, .. } if behind > 0)
    };
    (0..size).filter(crosses).collect()
}

/// Tokens that begin with what is missing of a mark and go on.
fn through(trie: &TokTrie, watch: &Watch, progress: Progress) -> Vec<u32> {
    let mut tokens = Vec::new();
    for (_, rest) in watch.rests(progress) {
        if let Some(node) = trie.child_at_bytes(trie.root(), rest) {
            below(trie, node, &mut tokens);
        }
    }
    tokens
}

fn below(trie: &TokTrie, node: &TrieNode, tokens: &mut Vec<u32>) {
    for child in trie.node_children(node) {
        tokens.extend(child.token_id());
        below(trie, child, tokens);
    }
}
