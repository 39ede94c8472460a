//! Byte-pair encoding on characters, SentencePiece style: spaces are `▁`, and what the vocabulary cannot spell becomes
//! byte tokens. Pairs are joined by the score of the result (`llama`) or by ranked merges (`gemma4`).

use std::collections::HashSet;
use std::ops::Range;

use super::merge::{Merge, RankedMerges, Symbol, Symbols};
use super::pieces::PieceCache;
use super::spec::TokenType;
use super::specials::SpecialTokens;
use super::vocab::Vocabulary;
use crate::TokenizerError;

const SPACE: char = '▁';

/// Which neighbours are joined first.
pub(crate) enum Rule {
    /// By a list of merges.
    Ranks(RankedMerges),
    /// By the score of the joined token, as ranks by id: the highest score has the lowest.
    Scores(Vec<u32>),
}

impl Rule {
    pub(crate) fn by_score(scores: &[f32]) -> Self {
        Self::Scores(scores.iter().map(|score| descending(*score)).collect())
    }
}

/// Orders scores from the highest down; NaN comes last.
fn descending(score: f32) -> u32 {
    if score.is_nan() {
        return u32::MAX;
    }
    let bits = (score + 0.0).to_bits();
    if bits >> 31 == 1 { bits } else { !(bits | 1 << 31) }
}

/// The way from text between special tokens to ids.
pub(crate) struct CharacterLevel {
    rule: Rule,
    add_prefix: bool,
    bytes: Option<Vec<u32>>,
    unknown: Option<u32>,
    joints: Joints,
    spaced: Option<SpecialTokens>,
}

impl CharacterLevel {
    pub(crate) fn new(
        rule: Rule,
        add_prefix: bool,
        unknown: Option<u32>,
        vocabulary: &Vocabulary,
    ) -> Result<Self, TokenizerError> {
        let bytes = (0..=u8::MAX).map(|byte| vocabulary.id(format!("<0x{byte:02X}>").as_bytes())).collect();
        let (joints, spaced) = (Joints::of(vocabulary), SpecialTokens::spaced(vocabulary)?);
        Ok(Self { rule, add_prefix, bytes, unknown, joints, spaced })
    }

    /// Appends the ids of `text`, which holds no special tokens and stands at the start or behind one.
    pub(crate) fn encode(&self, text: &str, vocabulary: &Vocabulary, ids: &mut Vec<u32>) {
        if text.is_empty() {
            return;
        }
        let mut spelled = String::with_capacity(text.len() + text.len() / 2);
        if self.add_prefix {
            spelled.push(SPACE);
        }
        spelled.extend(text.chars().map(|c| if c == ' ' { SPACE } else { c }));
        let mut words = Words { engine: self, vocabulary, cache: PieceCache::default(), symbols: Symbols::default() };
        let mut done = 0;
        for found in self.spaced.iter().flat_map(|spaced| spaced.find(&spelled, &[])) {
            words.encode(spelled.get(done..found.range.start).unwrap_or_default(), ids);
            ids.push(found.id);
            done = found.range.end;
        }
        words.encode(spelled.get(done..).unwrap_or_default(), ids);
    }

    fn encode_piece(&self, piece: &str, vocabulary: &Vocabulary, symbols: &mut Symbols, ids: &mut Vec<u32>) {
        symbols.clear();
        for (at, c) in piece.char_indices() {
            let range = at..at + c.len_utf8();
            let id = token_of(piece, range.clone(), vocabulary);
            symbols.push(range, id);
        }
        match &self.rule {
            Rule::Ranks(merges) => symbols.merge(|left, right| merges.join(left, right)),
            Rule::Scores(ranks) => symbols.merge(|left, right| {
                let id = token_of(piece, left.range().start..right.range().end, vocabulary)?;
                Some(Merge { rank: *ranks.get(usize::try_from(id).ok()?)?, id })
            }),
        }
        self.emit(piece, symbols, ids);
    }

    fn emit(&self, piece: &str, symbols: &Symbols, ids: &mut Vec<u32>) {
        let mut after_unknown = false;
        for symbol in symbols.iter() {
            let bytes = self.spell(piece, symbol);
            let unknown = symbol.id.is_none() && bytes.is_none();
            match (symbol.id, bytes) {
                (Some(id), _) => ids.push(id),
                (None, Some(bytes)) => ids.extend(bytes),
                (None, None) if after_unknown => {}
                (None, None) => ids.extend(self.unknown),
            }
            after_unknown = unknown;
        }
    }

    /// The byte tokens of a symbol, if the vocabulary has them.
    fn spell<'a>(&'a self, piece: &'a str, symbol: &Symbol) -> Option<impl Iterator<Item = u32> + 'a> {
        let bytes = self.bytes.as_ref()?;
        let text = piece.get(symbol.range())?;
        Some(text.bytes().filter_map(|byte| bytes.get(usize::from(byte)).copied()))
    }
}

/// The encoding of one text, with what is remembered on the way.
struct Words<'a, 't> {
    engine: &'a CharacterLevel,
    vocabulary: &'a Vocabulary,
    cache: PieceCache<'t>,
    symbols: Symbols,
}

impl<'t> Words<'_, 't> {
    fn encode(&mut self, text: &'t str, ids: &mut Vec<u32>) {
        let Self { engine, vocabulary, cache, symbols } = self;
        engine.joints.split(text, |piece| {
            cache.encode(piece, ids, |ids| engine.encode_piece(piece, vocabulary, symbols, ids));
        });
    }
}

/// The token that a stretch of text is, if merging may arrive at it.
fn token_of(text: &str, range: Range<usize>, vocabulary: &Vocabulary) -> Option<u32> {
    let id = vocabulary.id(text.get(range)?.as_bytes())?;
    is_mergeable(vocabulary.token_type(id)?).then_some(id)
}

fn is_mergeable(kind: TokenType) -> bool {
    matches!(kind, TokenType::Normal | TokenType::UserDefined | TokenType::Unused)
}

/// Neighbouring characters at the borders of words and lines that some token spans. Where no token spans two
/// neighbours no merge crosses them, so the text can be cut there and words be looked up in a cache.
struct Joints(HashSet<(char, char)>);

impl Joints {
    fn of(vocabulary: &Vocabulary) -> Self {
        let mut joints = HashSet::new();
        let texts = vocabulary.iter().filter(|(_, _, kind)| is_mergeable(*kind));
        for text in texts.filter_map(|(_, spelling, _)| std::str::from_utf8(spelling).ok()) {
            let mut previous = None;
            for c in text.chars() {
                joints.extend(previous.map(|p| (p, c)).filter(|(p, c)| is_border(*p, *c)));
                previous = Some(c);
            }
        }
        Self(joints)
    }

    fn split<'t>(&self, text: &'t str, mut piece: impl FnMut(&'t str)) {
        let (mut start, mut previous) = (0, None);
        for (at, c) in text.char_indices() {
            let cut = previous.is_some_and(|p| is_border(p, c) && !self.0.contains(&(p, c)));
            if let Some(done) = text.get(start..at).filter(|_| cut) {
                piece(done);
                start = at;
            }
            previous = Some(c);
        }
        if let Some(rest) = text.get(start..).filter(|rest| !rest.is_empty()) {
            piece(rest);
        }
    }
}

fn is_border(left: char, right: char) -> bool {
    right == SPACE || left == '\n' || right == '\n'
}
