//! A compiled grammar, and a run through it.

use std::sync::{Mutex, PoisonError};

use llguidance::api::TopLevelGrammar;
use llguidance::{Matcher, ParserFactory};
use sha2::{Digest, Sha256};
use toktrie::SimpleVob;

use crate::GuideError;
use crate::cache::Key;

/// Grammars nest: schemas by references, Lark by brackets. What is compiled is bounded, and this holds the deepest of it.
const COMPILER_STACK: usize = 128 << 20;

/// A compiled grammar, from which runs are started.
pub(crate) struct Program(Mutex<Matcher>);

impl Program {
    pub(crate) fn key(grammar: &TopLevelGrammar) -> Result<Key, String> {
        let written = serde_json::to_vec(grammar).map_err(|error| error.to_string())?;
        Ok(Sha256::digest(written).into())
    }

    pub(crate) fn new(factory: &ParserFactory, grammar: TopLevelGrammar) -> Result<Self, String> {
        let matcher = on_a_deep_stack(|| Matcher::new(factory.create_parser(grammar)))?;
        match matcher.get_error() {
            Some(error) => Err(brief(&error)),
            None => Ok(Self(Mutex::new(matcher))),
        }
    }

    /// Begins anew. Runs share nothing that grows.
    pub(crate) fn start(&self) -> Run {
        Run(Box::new(self.0.lock().unwrap_or_else(PoisonError::into_inner).deep_clone()))
    }
}

/// Runs what may nest deeply; a panic in it is an error like others.
pub(crate) fn on_a_deep_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, String> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("grammar".into()).stack_size(COMPILER_STACK);
        let running = thread.spawn_scoped(scope, work).map_err(|error| error.to_string())?;
        running.join().map_err(|_| "the grammar compiler failed".to_owned())
    })
}

/// The compiler's message, without the state of its parser and the stack that some have behind it.
pub(crate) fn brief(message: &str) -> String {
    let end = ["\n<state>", "\n<non-verbose/>", "\n<backtrace>"].iter().filter_map(|mark| message.find(mark)).min();
    message.get(..end.unwrap_or(message.len())).unwrap_or(message).trim().to_owned()
}

/// A place in a grammar, moved on by tokens.
pub(crate) struct Run(Box<Matcher>);

impl Run {
    /// The tokens that may follow, those that end an answer among them where the grammar may end.
    pub(crate) fn mask(&mut self) -> Result<SimpleVob, GuideError> {
        self.0.compute_mask_or_eos().map_err(|error| GuideError::TooCostly(brief(&error.to_string())))
    }

    /// Takes as many of the tokens as fit and says how many those were.
    pub(crate) fn take(&mut self, tokens: &[u32]) -> Result<usize, GuideError> {
        self.0.try_consume_tokens(tokens).map_err(|error| GuideError::TooCostly(brief(&error.to_string())))
    }

    /// Whether all of these tokens would fit. Changes nothing.
    pub(crate) fn fits(&mut self, tokens: &[u32]) -> bool {
        self.0.validate_tokens(tokens).is_ok_and(|fitting| fitting == tokens.len())
    }

    pub(crate) fn rewind(&mut self, tokens: usize) -> Result<(), GuideError> {
        self.0.rollback(tokens).map_err(|error| GuideError::TooCostly(brief(&error.to_string())))
    }

    /// Whether the grammar may end here.
    pub(crate) fn may_end(&mut self) -> bool {
        self.0.is_accepting().unwrap_or(false)
    }

    /// Whether nothing may follow.
    pub(crate) fn is_over(&self) -> bool {
        self.0.is_stopped()
    }
}
