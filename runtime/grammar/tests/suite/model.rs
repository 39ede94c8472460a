//! A vocabulary, and a model that knows nothing: it chooses at random among what it may.

use std::collections::HashMap;
use std::path::Path;
use std::sync::OnceLock;

use bantam_gguf::GgufFile;
use bantam_grammar::{Grammar, Guide, Rules, Vocabulary};
use bantam_text::{Tokenizer, TokenizerSpec};

/// Tokens after which an answer should have come to its end.
pub(crate) const PATIENCE: usize = 4000;

pub(crate) struct Model {
    pub(crate) tokenizer: Tokenizer,
    pub(crate) vocabulary: Vocabulary,
    pub(crate) end: u32,
    by_bytes: HashMap<Vec<u8>, u32>,
    /// How much a token is liked: 0 by one that helps to come to an end, 1 by others, more by one that does not.
    dislike: Vec<f64>,
}

/// A byte-level vocabulary of 49152 tokens.
pub(crate) fn smollm() -> &'static Model {
    static MODEL: OnceLock<Model> = OnceLock::new();
    MODEL.get_or_init(|| Model::new(spec("smollm2"), &[]))
}

/// A SentencePiece vocabulary of 32000 tokens, some of the same bytes.
pub(crate) fn llama() -> &'static Model {
    static MODEL: OnceLock<Model> = OnceLock::new();
    MODEL.get_or_init(|| Model::new(spec("llama-spm"), &[]))
}

pub(crate) fn spec(name: &str) -> TokenizerSpec {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../tests/fixtures/tokenizers/{name}.gguf"));
    TokenizerSpec::from_gguf(GgufFile::open(path).unwrap().metadata()).unwrap()
}

impl Model {
    pub(crate) fn new(spec: TokenizerSpec, stop_tokens: &[&str]) -> Self {
        let tokenizer = Tokenizer::new(spec).unwrap();
        let mut ends = tokenizer.end_ids();
        ends.extend(stop_tokens.iter().filter_map(|token| tokenizer.token_to_id(token)));
        let vocabulary = Vocabulary::new(&tokenizer, &ends).unwrap();
        let size = u32::try_from(tokenizer.vocab_size()).unwrap();
        let dislike = (0..size).map(|id| dislike(tokenizer.token_bytes(id, false), tokenizer.is_control(id))).collect();
        let by_bytes = (0..size).map(|id| (tokenizer.token_bytes(id, false).to_vec(), id)).collect();
        Self { tokenizer, vocabulary, end: ends[0], by_bytes, dislike }
    }

    pub(crate) fn compile(&self, rules: &Rules) -> Grammar {
        self.vocabulary.compile(rules).unwrap_or_else(|error| panic!("{error}"))
    }

    pub(crate) fn text(&self, tokens: &[u32]) -> String {
        let bytes: Vec<u8> = tokens.iter().flat_map(|&id| self.tokenizer.token_bytes(id, false)).copied().collect();
        String::from_utf8(bytes).expect("whole characters")
    }

    /// Whether a mask allows a token.
    pub(crate) fn allows(mask: Option<&[u32]>, token: u32) -> bool {
        mask.is_none_or(|mask| mask.get(token as usize / 32).is_some_and(|word| word >> (token % 32) & 1 == 1))
    }

    /// A random token among the allowed. The longer the answer, the more those that end things are preferred.
    pub(crate) fn choose(&self, mask: Option<&[u32]>, chance: &mut Chance, step: usize) -> u32 {
        let haste = 2.0 + step as f64 / 8.0;
        let size = self.dislike.len();
        let words: Vec<u32> = mask.map_or_else(|| vec![u32::MAX; size.div_ceil(32)], <[u32]>::to_vec);
        let allowed = words.iter().enumerate().filter(|(_, word)| **word != 0).flat_map(|(at, word)| {
            (0..32).filter(move |bit| word >> bit & 1 == 1).map(move |bit| at * 32 + bit).filter(|id| *id < size)
        });
        let waits = allowed.map(|id| (chance.wait() * haste.powf(2.0 * self.dislike[id] - 2.0), id));
        let first = waits.min_by(|a, b| a.0.total_cmp(&b.0));
        first.expect("some token is allowed").1 as u32
    }

    /// The longest allowed token that a text begins with.
    pub(crate) fn of_text(&self, mask: Option<&[u32]>, text: &[u8]) -> Option<u32> {
        let mut tokens = (1..=text.len()).rev().filter_map(|end| self.by_bytes.get(&text[..end]).copied());
        tokens.find(|&id| Self::allows(mask, id))
    }

    /// Lets the model write an answer to its end.
    pub(crate) fn write(&self, guide: &mut Guide, chance: &mut Chance) -> Vec<u32> {
        self.write_wishing(guide, chance, &[])
    }

    /// The same, of a model that writes one of these texts now and then where it may.
    pub(crate) fn write_wishing(&self, guide: &mut Guide, chance: &mut Chance, wishes: &[&str]) -> Vec<u32> {
        let (mut tokens, mut wish) = (Vec::new(), &b""[..]);
        while tokens.len() < PATIENCE {
            if wish.is_empty() && !wishes.is_empty() && chance.below(6) == 0 {
                wish = wishes[chance.below(wishes.len())].as_bytes();
            }
            let mask = guide.mask().unwrap();
            let token = self.of_text(mask, wish).unwrap_or_else(|| self.choose(mask, chance, tokens.len()));
            let bytes = self.tokenizer.token_bytes(token, false);
            wish = wish.strip_prefix(bytes).unwrap_or_default();
            guide.accept(token).unwrap();
            if token == self.end || guide.must_end() {
                return tokens.into_iter().chain((token != self.end).then_some(token)).collect();
            }
            tokens.push(token);
        }
        panic!("no end after {PATIENCE} tokens: {}…", &self.text(&tokens).chars().take(300).collect::<String>());
    }
}

/// Quotes and closing brackets help to come to an end, opening brackets and more of a number do not.
fn dislike(bytes: &[u8], is_control: bool) -> f64 {
    let all = |set: &str| !bytes.is_empty() && bytes.iter().all(|byte| set.as_bytes().contains(byte));
    let begins_closing =
        ["\"", "]", "}", ")", "'", "</", "@", ":"].iter().any(|mark| bytes.starts_with(mark.as_bytes()));
    if is_control || begins_closing {
        0.0
    } else if all("eE+-") {
        // A number with a long exponent is valid, and few readers have a value for it.
        4.0
    } else if all("0123456789")
        || bytes.ends_with(b"[")
        || bytes.ends_with(b"{")
        || bytes.ends_with(b",")
        || bytes.contains(&b'\\')
    {
        2.0
    } else {
        1.0
    }
}

/// Random numbers that are the same in every run.
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// How long until something happens that happens once in a while: who is first is chosen evenly.
    fn wait(&mut self) -> f64 {
        let even = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        -(1.0 - even).ln()
    }
}
