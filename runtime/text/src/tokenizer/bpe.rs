//! Byte-level byte-pair encoding, GPT-2 style: every byte is a token, so any text can be spelled.

use super::alphabet;
use super::merge::{RankedMerges, Symbols};
use super::pieces::PieceCache;
use super::spec::TokenType;
use super::split::PreTokenizer;
use super::vocab::Vocabulary;

/// The way from text between special tokens to ids.
pub(crate) struct ByteLevel {
    pre: PreTokenizer,
    bytes: Vec<Option<u32>>,
    merges: RankedMerges,
}

impl ByteLevel {
    pub(crate) fn new(pre: PreTokenizer, merges: &[Vec<u8>], vocabulary: &Vocabulary) -> Self {
        let spelled = |byte: u8| vocabulary.id(alphabet::spell(byte).encode_utf8(&mut [0; 4]).as_bytes());
        let bytes: Vec<_> = (0..=u8::MAX).map(spelled).collect();
        let missing = bytes.iter().filter(|id| id.is_none()).count();
        if missing > 0 {
            tracing::debug!("the vocabulary has no token for {missing} of 256 bytes; they are dropped from texts");
        }
        Self { pre, bytes, merges: RankedMerges::new(merges, vocabulary) }
    }

    /// Appends the ids of `text`, which holds no special tokens.
    pub(crate) fn encode(&self, text: &str, vocabulary: &Vocabulary, ids: &mut Vec<u32>) {
        let text = self.pre.normalized(text);
        let mut cache = PieceCache::default();
        let mut symbols = Symbols::default();
        self.pre.splitter.split(&text, &mut |piece| {
            cache.encode(piece, ids, |ids| self.encode_piece(piece, vocabulary, &mut symbols, ids));
        });
    }

    fn encode_piece(&self, piece: &str, vocabulary: &Vocabulary, symbols: &mut Symbols, ids: &mut Vec<u32>) {
        if let Some(id) = self.whole(piece, vocabulary) {
            ids.push(id);
            return;
        }
        symbols.clear();
        for (at, byte) in piece.bytes().enumerate() {
            if let Some(id) = self.bytes.get(usize::from(byte)).copied().flatten() {
                symbols.push(at..at + 1, Some(id));
            }
        }
        symbols.merge(|left, right| self.merges.join(left, right));
        ids.extend(symbols.iter().filter_map(|symbol| symbol.id));
    }

    /// The token that is `piece`, where such tokens are taken without merging.
    fn whole(&self, piece: &str, vocabulary: &Vocabulary) -> Option<u32> {
        if !self.pre.whole_pieces {
            return None;
        }
        let spelled: String = piece.bytes().map(alphabet::spell).collect();
        let id = vocabulary.id(spelled.as_bytes())?;
        let kind = vocabulary.token_type(id)?;
        matches!(kind, TokenType::Normal | TokenType::UserDefined).then_some(id)
    }
}
