//! Tokenizers: text to ids and back.

mod alphabet;
mod bpe;
mod build;
mod characters;
mod gguf;
mod hf;
mod joined;
mod library;
mod merge;
mod pieces;
mod spec;
mod specials;
mod split;
mod stream;
mod vocab;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use bpe::ByteLevel;
use characters::CharacterLevel;
pub use joined::Joined;
use library::Library;
pub use spec::{TokenType, TokenizerSpec};
use specials::{Found, SpecialTokens};
pub use stream::StreamDecoder;
use vocab::Vocabulary;

use crate::TokenizerError;

/// Longest text that is encoded at once, in bytes. Positions in it are kept in 32 bits, also with every space spelled
/// in three bytes.
const MAX_TEXT: usize = 1 << 30;

/// Texts of more bytes than this are encoded one at a time: at worst, where a text is one endless word, encoding takes some
/// fifty times their memory.
const LARGE_TEXT: usize = 1 << 18;

/// Whether control tokens spelled in a text are taken for the tokens. User-defined tokens are recognised in any text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Specials {
    /// The text comes from a template or another trusted source: control tokens are recognised.
    Parse,
    /// The text comes from a user: control tokens stay text.
    Plain,
}

/// A stretch of a prompt and how far it is trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The text.
    pub text: String,
    /// How control tokens in it are treated.
    pub specials: Specials,
}

/// A model's tokenizer. Cloning is cheap; clones share one table.
#[derive(Clone)]
pub struct Tokenizer(Arc<Inner>);

struct Inner {
    vocabulary: Vocabulary,
    specials: SpecialTokens,
    engine: Engine,
    framing: Framing,
    /// Whether decoded text loses one leading space, because encoding put it there.
    strips_leading_space: bool,
    suppressed: Vec<u32>,
    /// Held while a large text is encoded.
    large: Mutex<()>,
}

enum Engine {
    Bytes(ByteLevel),
    Characters(CharacterLevel),
    Library(Library),
}

/// The special ids by role, and those that a plain text gets in front and behind.
#[derive(Default)]
struct Framing {
    ids: BTreeMap<String, u32>,
    prefix: Vec<u32>,
    suffix: Vec<u32>,
}

impl Framing {
    fn id(&self, role: &str) -> Option<u32> {
        self.ids.get(role).copied()
    }
}

/// Appends the ids of the special tokens, and what `encode` makes of the text before, between and behind them.
fn between(text: &str, found: &[Found], ids: &mut Vec<u32>, encode: impl Fn(&str, &mut Vec<u32>)) {
    let mut done = 0;
    for special in found {
        encode(text.get(done..special.range.start).unwrap_or_default(), ids);
        ids.push(special.id);
        done = special.range.end;
    }
    encode(text.get(done..).unwrap_or_default(), ids);
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer").field("vocab_size", &self.vocab_size()).finish_non_exhaustive()
    }
}

impl Tokenizer {
    /// The ids of `text`, with nothing added in front or behind.
    ///
    /// # Errors
    /// A text of more than 1 GiB, or one that the `tokenizers` library fails on, where a tokenizer needs it.
    pub fn encode(&self, text: &str, specials: Specials) -> Result<Vec<u32>, TokenizerError> {
        match specials {
            Specials::Parse => self.encode_guarded(text, &[]),
            Specials::Plain => self.encode_guarded(text, std::slice::from_ref(&(0..text.len()))),
        }
    }

    /// The ids of the concatenated segments: a control token counts only where all of it lies in [`Specials::Parse`]
    /// segments. Apart from that the borders of segments do not matter: words and merges run across them.
    ///
    /// # Errors
    /// As [`encode`](Self::encode).
    pub fn encode_segments(&self, segments: &[Segment]) -> Result<Vec<u32>, TokenizerError> {
        self.encode_joined(&self.join(segments)?)
    }

    fn encode_guarded(&self, text: &str, untrusted: &[Range<usize>]) -> Result<Vec<u32>, TokenizerError> {
        if text.len() > MAX_TEXT {
            return Err(TokenizerError::TooLong { bytes: text.len(), most: MAX_TEXT });
        }
        self.encode_found(text, &self.0.specials.find(text, untrusted))
    }

    /// The ids of a text in which these special tokens were found.
    fn encode_found(&self, text: &str, found: &[Found]) -> Result<Vec<u32>, TokenizerError> {
        let Inner { vocabulary, engine, large, .. } = &*self.0;
        let _turn = (text.len() > LARGE_TEXT).then(|| large.lock().unwrap_or_else(PoisonError::into_inner));
        let mut ids = Vec::with_capacity(text.len() / 4 + 1);
        match engine {
            Engine::Bytes(engine) => between(text, found, &mut ids, |part, ids| engine.encode(part, vocabulary, ids)),
            Engine::Characters(engine) => {
                between(text, found, &mut ids, |part, ids| engine.encode(part, vocabulary, ids));
            }
            Engine::Library(engine) => ids = engine.encode(text, found)?,
        }
        Ok(ids)
    }

    /// Tokens that a text of so many bytes has, at least: to tell one that is far too long without finding them. 0 where
    /// normalizing may take anything away.
    pub fn fewest_tokens(&self, bytes: usize) -> usize {
        /// Composing characters leaves at least a third of their bytes.
        const SHRINKS_BY: usize = 3;
        let Inner { vocabulary, engine, .. } = &*self.0;
        match engine {
            Engine::Bytes(_) | Engine::Characters(_) => bytes / SHRINKS_BY / vocabulary.longest_output().max(1),
            Engine::Library(_) => 0,
        }
    }

    /// Puts around the ids of a plain text what the metadata asks for: BOS, separator, EOS. What is there already is not
    /// doubled.
    pub fn frame(&self, mut ids: Vec<u32>) -> Vec<u32> {
        let Framing { prefix, suffix, .. } = &self.0.framing;
        if !ids.starts_with(prefix) {
            ids.splice(0..0, prefix.iter().copied());
        }
        if suffix.is_empty() || !ids.ends_with(suffix) {
            ids.extend_from_slice(suffix);
        }
        ids
    }

    /// The bytes that `ids` stand for; not necessarily UTF-8. Ids outside the vocabulary stand for nothing. With
    /// `skip_special` control tokens are left out, else they are spelled.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Vec<u8> {
        let mut bytes: Vec<u8> = Vec::with_capacity(ids.len() * 4);
        for id in ids {
            bytes.extend_from_slice(self.token_bytes(*id, skip_special));
        }
        if self.0.strips_leading_space && bytes.first() == Some(&b' ') {
            bytes.remove(0);
        }
        bytes
    }

    /// The bytes that one id stands for, as [`decode`](Self::decode) would join them.
    pub fn token_bytes(&self, id: u32, skip_special: bool) -> &[u8] {
        if skip_special && self.is_control(id) { &[] } else { self.0.vocabulary.output(id).unwrap_or_default() }
    }

    /// Decodes ids as they come; see [`StreamDecoder`].
    pub fn stream(&self, skip_special: bool) -> StreamDecoder {
        StreamDecoder::new(self.clone(), skip_special)
    }

    /// How many ids there are, padding included.
    pub fn vocab_size(&self) -> usize {
        self.0.vocabulary.len()
    }

    /// The id that the vocabulary spells so: byte-level vocabularies spell a space "Ġ", SentencePiece "▁".
    pub fn token_to_id(&self, spelling: &str) -> Option<u32> {
        self.0.vocabulary.id(spelling.as_bytes())
    }

    /// How the vocabulary spells an id.
    pub fn id_to_token(&self, id: u32) -> Option<String> {
        self.0.vocabulary.spelling(id).map(|spelling| String::from_utf8_lossy(spelling).into_owned())
    }

    /// The role of an id.
    pub fn token_type(&self, id: u32) -> Option<TokenType> {
        self.0.vocabulary.token_type(id)
    }

    /// Whether an id is a marker that is left out of shown text.
    pub fn is_control(&self, id: u32) -> bool {
        self.token_type(id).is_some_and(TokenType::is_control)
    }

    /// The id with a role: `bos`, `eos`, `eot`, `eom`, `unk`, `sep`, `pad`, `mask`, `cls`, `fim_pre`, …
    pub fn special_id(&self, role: &str) -> Option<u32> {
        self.0.framing.id(role)
    }

    /// The beginning-of-text id.
    pub fn bos(&self) -> Option<u32> {
        self.special_id("bos")
    }

    /// The ids that end an answer as far as the file declares them: EOS, end of turn, end of message. Families know
    /// more of their own.
    pub fn end_ids(&self) -> Vec<u32> {
        let mut ids: Vec<u32> = ["eos", "eot", "eom"].iter().filter_map(|role| self.special_id(role)).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// Whether a plain text gets BOS in front.
    pub fn add_bos(&self) -> bool {
        self.bos().is_some_and(|bos| self.0.framing.prefix.contains(&bos))
    }

    /// Whether a plain text gets EOS at its end.
    pub fn add_eos(&self) -> bool {
        self.special_id("eos").is_some_and(|eos| self.0.framing.suffix.contains(&eos))
    }

    /// Ids that must never be sampled.
    pub fn suppressed(&self) -> &[u32] {
        &self.0.suppressed
    }

    /// The special tokens by the names that chat templates know them by (`bos_token`, `eos_token`, …).
    pub fn special_tokens(&self) -> BTreeMap<String, String> {
        let named = ["bos", "eos", "unk", "sep", "pad", "cls", "mask"];
        let text = |role: &&str| Some((format!("{role}_token"), self.id_to_token(self.special_id(role)?)?));
        named.iter().filter_map(text).collect()
    }

    /// Ranges of `text` that spell a control token, or end it with the beginning of one: what must be marked as
    /// untrusted when `text` comes from a user.
    pub fn control_spellings(&self, text: &str) -> Vec<Range<usize>> {
        self.0.specials.control_spellings(text)
    }
}
