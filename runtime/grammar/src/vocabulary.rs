//! The tokens of a model as grammars look at them: a trie of bytes, in which control tokens are no text.

use std::sync::{Arc, Mutex, PoisonError};

use bantam_text::{Specials, Tokenizer};
use llguidance::ParserFactory;
use llguidance::api::{ParserLimits, TopLevelGrammar};
use llguidance::earley::SlicedBiasComputer;
use toktrie::{InferenceCapabilities, SimpleVob, TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};

use crate::cache::Cache;
use crate::program::Program;
use crate::{Grammar, GrammarError, Rules, VocabularyError, compile};

/// Bits that the trie has for an id, with one id less for "none".
const MOST_TOKENS: usize = (1 << 24) - 1;

/// Longer tokens are never allowed under a grammar: what walks the trie has room for so many bytes.
const LONGEST_TOKEN: usize = 255;

/// Programs kept, used or not.
const KEPT_PROGRAMS: usize = 64;

/// The vocabulary of a model, with the grammars compiled for it last. Built once per model; clones share everything.
#[derive(Clone)]
pub struct Vocabulary(Arc<Inner>);

struct Inner {
    tokenizer: Tokenizer,
    factory: ParserFactory,
    ends: Vec<u32>,
    programs: Mutex<Cache<Program>>,
}

impl Vocabulary {
    /// Arranges the tokens. Those of `ends` end an answer; they are never text of one.
    ///
    /// # Errors
    /// No usable token in `ends`, or far too many tokens.
    pub fn new(tokenizer: &Tokenizer, ends: &[u32]) -> Result<Self, VocabularyError> {
        let size = tokenizer.vocab_size();
        if size >= MOST_TOKENS {
            return Err(VocabularyError::TooLarge { size, most: MOST_TOKENS - 1 });
        }
        let known: Vec<u32> = ends.iter().copied().filter(|id| (*id as usize) < size).collect();
        let trie = trie(tokenizer, &known).ok_or_else(|| VocabularyError::NoEnd { ends: ends.into(), size })?;
        let factory = factory(trie).map_err(|error| VocabularyError::Trie(error.to_string()))?;
        let programs = Mutex::new(Cache::new(KEPT_PROGRAMS));
        Ok(Self(Arc::new(Inner { tokenizer: tokenizer.clone(), factory, ends: known, programs })))
    }

    /// Makes the grammar of a request, or finds it. Takes milliseconds: not for a thread that others wait for.
    ///
    /// # Errors
    /// Anything that is asked for and cannot be held to, by its place in the request.
    pub fn compile(&self, rules: &Rules) -> Result<Grammar, GrammarError> {
        compile::compile(self, rules)
    }

    pub(crate) fn tokenizer(&self) -> &Tokenizer {
        &self.0.tokenizer
    }

    pub(crate) fn factory(&self) -> &ParserFactory {
        &self.0.factory
    }

    pub(crate) fn trie(&self) -> &TokTrie {
        self.0.factory.tok_env().tok_trie()
    }

    pub(crate) fn has(&self, token: u32) -> bool {
        (token as usize) < self.trie().vocab_size()
    }

    pub(crate) fn is_end(&self, token: u32) -> bool {
        self.0.ends.contains(&token)
    }

    /// Whether a token is no text: a control token, or one that ends an answer.
    pub(crate) fn is_special(&self, token: u32) -> bool {
        self.tokenizer().is_control(token) || self.is_end(token)
    }

    /// All tokens, as a mask.
    pub(crate) fn all(&self) -> SimpleVob {
        let mut mask = self.trie().alloc_token_set();
        mask.set_all(true);
        mask
    }

    /// The tokens that end an answer, as a mask.
    pub(crate) fn only_ends(&self) -> SimpleVob {
        self.trie().eos_token_set()
    }

    /// The bytes of a token, control tokens as they are spelled.
    pub(crate) fn bytes(&self, token: u32) -> &[u8] {
        self.0.tokenizer.token_bytes(token, false)
    }

    /// Tokens that join to these bytes; control tokens where they are spelled, and the tokenizer's own cuts where it keeps
    /// to the bytes. Bytes that no token has are left out.
    pub(crate) fn spell(&self, bytes: &[u8]) -> Vec<u32> {
        let encoded =
            std::str::from_utf8(bytes).ok().and_then(|text| self.tokenizer().encode(text, Specials::Parse).ok());
        let joins = |ids: &Vec<u32>| ids.iter().flat_map(|&id| self.bytes(id)).eq(bytes);
        encoded.filter(joins).unwrap_or_else(|| self.trie().greedy_tokenize(bytes))
    }

    /// The program of a grammar, from the cache or newly made.
    pub(crate) fn program(&self, grammar: TopLevelGrammar) -> Result<Arc<Program>, String> {
        let key = Program::key(&grammar)?;
        if let Some(found) = self.programs().get(&key) {
            return Ok(found);
        }
        let made = Arc::new(Program::new(self.factory(), grammar)?);
        self.programs().put(key, Arc::clone(&made));
        Ok(made)
    }

    fn programs(&self) -> std::sync::MutexGuard<'_, Cache<Program>> {
        self.0.programs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Vocabulary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vocabulary").field("tokens", &self.trie().vocab_size()).field("ends", &self.0.ends).finish()
    }
}

fn trie(tokenizer: &Tokenizer, ends: &[u32]) -> Option<TokTrie> {
    let size = u32::try_from(tokenizer.vocab_size()).ok()?;
    let words: Vec<Vec<u8>> = (0..size).map(|id| word(tokenizer, id, ends.contains(&id))).collect();
    let info = TokRxInfo::new(size, *ends.first()?);
    Some(TokTrie::from(&info, &words).with_eos_tokens(ends))
}

/// A token's bytes in the trie. Control tokens are told from texts by a byte that begins no character.
fn word(tokenizer: &Tokenizer, id: u32, is_end: bool) -> Vec<u8> {
    let bytes = tokenizer.token_bytes(id, false);
    if tokenizer.is_control(id) || is_end {
        let mark = [TokTrie::SPECIAL_TOKEN_MARKER];
        return [&mark, format!("<{id}>").as_bytes()].concat();
    }
    let usable = bytes.len() <= LONGEST_TOKEN && bytes.first() != Some(&TokTrie::SPECIAL_TOKEN_MARKER);
    if usable { bytes.into() } else { Vec::new() }
}

fn factory(trie: TokTrie) -> Result<ParserFactory, impl std::fmt::Display> {
    let env: TokEnv = Arc::new(Environment(trie));
    let slices = SlicedBiasComputer::general_slices();
    ParserFactory::new(&env, InferenceCapabilities::default(), &slices).map(|mut factory| {
        factory.quiet();
        *factory.limits_mut() = limits();
        factory
    })
}

/// What one grammar may cost. Far above what real schemas need, far below what would be felt.
pub(crate) fn limits() -> ParserLimits {
    ParserLimits {
        max_grammar_size: 200_000,
        max_lexer_states: 50_000,
        // Its gain is small where guides share nothing, and it makes compiling long.
        precompute_large_lexemes: false,
        verbose_errors: false,
        ..ParserLimits::default()
    }
}

/// The trie as llguidance takes it. The model chooses how it cuts forced texts into tokens.
struct Environment(TokTrie);

impl TokenizerEnv for Environment {
    fn tok_trie(&self) -> &TokTrie {
        &self.0
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        self.0.greedy_tokenize(bytes)
    }

    fn tokenize_is_canonical(&self) -> bool {
        false
    }
}
