//! What a grammar is: the zones of an answer, what ends each, and the programs that hold calls and forms.

use std::sync::Arc;

use toktrie::SimpleVob;

use crate::program::Program;
use crate::watch::{Progress, Watch};
use crate::{Guide, Vocabulary};

/// A compiled grammar: what a request allows. Cloning is cheap, and each sequence takes a guide of its own.
#[derive(Clone)]
pub struct Grammar(pub(crate) Arc<Plan>);

impl Grammar {
    /// A guide for one sequence, at the beginning of its answer.
    pub fn guide(&self) -> Guide {
        Guide::new(Arc::clone(&self.0))
    }
}

impl std::fmt::Debug for Grammar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Plan { thoughts, triggers, held, .. } = &*self.0;
        let counts = (thoughts.len(), triggers.len());
        f.debug_struct("Grammar").field("thoughts, triggers", &counts).field("held", &held.is_some()).finish()
    }
}

/// All of it.
pub(crate) struct Plan {
    pub(crate) vocabulary: Vocabulary,
    /// The ways to reason; see [`Rules::reasoning`](crate::Rules::reasoning).
    pub(crate) thoughts: Vec<Thought>,
    pub(crate) starts_in: Option<usize>,
    pub(crate) budget: Option<usize>,
    /// Answers that may be any text.
    pub(crate) free: Zone,
    /// Answers that may not: all of one is held to this.
    pub(crate) held: Option<Arc<Program>>,
    /// The same of an answer that begins with no more reasoning: a header may say to whom it goes. Where the model may
    /// still reason, a header is how it begins to.
    pub(crate) settled: Option<Arc<Program>>,
    /// Whether held answers are calls and nothing else.
    pub(crate) only_calls: bool,
    /// Finds where calls begin in a held answer.
    pub(crate) call_watch: Watch,
    pub(crate) triggers: Vec<Trigger>,
    pub(crate) max_call_tokens: Option<usize>,
}

/// A way to reason.
pub(crate) struct Thought {
    pub(crate) open: Vec<u8>,
    /// The first token of `open`.
    pub(crate) first: Option<u32>,
    pub(crate) zone: Zone,
}

/// Text that is free until a mark.
#[derive(Default)]
pub(crate) struct Zone {
    pub(crate) watch: Watch,
    /// What each of the watch's marks means.
    pub(crate) meanings: Vec<Meaning>,
    /// What is allowed; none: everything.
    usual: Option<SimpleVob>,
    /// What is allowed instead, by progress.
    masks: Vec<Option<SimpleVob>>,
}

impl Zone {
    pub(crate) fn new(
        watch: Watch,
        meanings: Vec<Meaning>,
        usual: Option<SimpleVob>,
        masks: Vec<Option<SimpleVob>>,
    ) -> Self {
        Self { watch, meanings, usual, masks }
    }

    pub(crate) fn mask(&self, progress: Progress) -> Option<&[u32]> {
        let here = self.masks.get(progress.index()).and_then(Option::as_ref);
        here.or(self.usual.as_ref()).map(SimpleVob::as_slice)
    }
}

/// What a mark means where it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// Reasoning begins, the way with this number.
    Opens(usize),
    /// It ends.
    Closes,
    /// A call begins, by the trigger with this number.
    Calls(usize),
}

/// What begins a call, and what such a call is held to.
pub(crate) struct Trigger {
    pub(crate) mark: Vec<u8>,
    /// Whether it counts only at the beginning of an answer.
    pub(crate) only_first: bool,
    /// The tokens of the mark, as the program takes them.
    pub(crate) opening: Vec<u32>,
    pub(crate) program: Arc<Program>,
    /// Whether nothing may follow the call.
    pub(crate) is_last: bool,
}
