//! Follows one answer token by token and says which tokens may come next.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use toktrie::SimpleVob;

use crate::GuideError;
use crate::plan::{Meaning, Plan, Zone};
use crate::program::Run;
use crate::watch::{Progress, Seen};

/// Tokens that can be taken back.
const REMEMBERED: usize = 256;

/// The state of one sequence under a [`Grammar`](crate::Grammar). Ask for the mask, choose a token, tell it.
///
/// An answer is reasoning, then text, in which calls may stand, or a text of the form asked for. Only calls and forms are
/// followed by a grammar; anything else costs a look at the token's bytes.
pub struct Guide {
    plan: Arc<Plan>,
    place: Place,
    /// In a held place, or behind one that came to its end.
    run: Option<Run>,
    taken: VecDeque<Step>,
    stop_thinking: Arc<AtomicBool>,
    mask: SimpleVob,
    /// Whether `mask` is that of the grammar at this place.
    prepared: bool,
}

/// Where in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Inside the mark that opens reasoning, which is written for the model.
    Opening { thought: usize, written: usize },
    /// Reasoning.
    Thinking { thought: usize, seen: Progress, tokens: usize },
    /// Text. `written` counts the bytes from the first that is no white space.
    Free { seen: Progress, written: usize },
    /// A call that began in free text.
    Call { trigger: usize, tokens: usize },
    /// An answer held to a grammar.
    Held(Held),
    /// Nothing may follow.
    Over { cut: bool },
}

/// In a held answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Held {
    /// Whether the model may still begin to reason.
    may_think: bool,
    /// Tokens of the call that it is in.
    call: Option<usize>,
    /// How much of a call's mark there is, as long as nothing else is.
    seen: Option<Progress>,
}

/// What taking a token back needs.
struct Step {
    before: Place,
    /// Tokens that the run took.
    fed: usize,
    run: Change,
}

/// What became of the run.
enum Change {
    Kept,
    Entered,
    Left(Run),
}

impl Guide {
    pub(crate) fn new(plan: Arc<Plan>) -> Self {
        let mask = plan.vocabulary.only_ends();
        let stop_thinking = Arc::new(AtomicBool::new(false));
        let mut guide = Self {
            place: Place::Over { cut: false },
            run: None,
            taken: VecDeque::new(),
            stop_thinking,
            mask,
            prepared: false,
            plan,
        };
        guide.place = match guide.plan.starts_in {
            Some(thought) => Place::Thinking { thought, seen: Progress::default(), tokens: 0 },
            None => guide.answer(!guide.plan.thoughts.is_empty()),
        };
        guide
    }

    /// The place at an answer's beginning.
    fn answer(&mut self, may_think: bool) -> Place {
        let held = if may_think { &self.plan.held } else { &self.plan.settled };
        let Some(held) = held else { return Place::Free { seen: Progress::default(), written: 0 } };
        self.run = Some(held.start());
        let call = self.plan.only_calls.then_some(0);
        Place::Held(Held { may_think, call, seen: Some(Progress::default()) })
    }

    /// The tokens that may come next: a bit for each id, the lowest of each word first; ids behind its end may not. None:
    /// all may.
    ///
    /// # Errors
    /// The grammar is too costly at this place. The sequence cannot go on.
    pub fn mask(&mut self) -> Result<Option<&[u32]>, GuideError> {
        if let Some(token) = self.due() {
            self.prepared = false;
            self.mask = self.plan.vocabulary.trie().singleton_token_set(token);
            return Ok(Some(self.mask.as_slice()));
        }
        match self.place {
            Place::Thinking { seen, .. } | Place::Free { seen, .. } => Ok(self.zone().and_then(|zone| zone.mask(seen))),
            Place::Opening { .. } => Ok(None),
            Place::Call { .. } | Place::Held(_) => {
                if !self.prepared {
                    self.hold()?;
                }
                Ok(Some(self.mask.as_slice()))
            }
            Place::Over { .. } => {
                self.mask = self.plan.vocabulary.only_ends();
                Ok(Some(self.mask.as_slice()))
            }
        }
    }

    /// Whether the next mask takes work that [`Guide::prepare`] can do ahead.
    pub fn takes_work(&self) -> bool {
        !self.prepared && matches!(self.place, Place::Call { .. } | Place::Held(_))
    }

    /// Computes the next mask, so that [`Guide::mask`] has it at once: for the time while the model computes. A grammar
    /// that is too costly is told by the mask.
    pub fn prepare(&mut self) {
        if self.takes_work() {
            self.prepared = self.hold().is_ok();
        }
    }

    fn hold(&mut self) -> Result<(), GuideError> {
        if let Some(run) = &mut self.run {
            self.mask = run.mask()?;
        }
        if let Place::Held(Held { may_think: true, .. }) = self.place {
            self.plan
                .thoughts
                .iter()
                .filter_map(|thought| thought.first)
                .for_each(|token| self.mask.allow_token(token));
        }
        Ok(())
    }

    /// The token that is written for the model: the next of a mark that must be completed.
    fn due(&self) -> Option<u32> {
        let rest = match self.place {
            Place::Opening { thought, written } => self.plan.thoughts.get(thought)?.open.get(written..)?,
            Place::Thinking { thought, seen, tokens } if self.must_stop_thinking(tokens) => {
                let Zone { watch, meanings, .. } = &self.plan.thoughts.get(thought)?.zone;
                watch.rest_of(meanings.iter().position(|meaning| *meaning == Meaning::Closes)?, seen)
            }
            _ => return None,
        };
        self.plan.vocabulary.spell(rest).first().copied()
    }

    fn must_stop_thinking(&self, tokens: usize) -> bool {
        self.plan.budget.is_some_and(|budget| tokens >= budget) || self.stop_thinking.load(Ordering::Relaxed)
    }

    fn zone(&self) -> Option<&Zone> {
        match self.place {
            Place::Thinking { thought, .. } => self.plan.thoughts.get(thought).map(|thought| &thought.zone),
            Place::Free { .. } => Some(&self.plan.free),
            _ => None,
        }
    }

    /// Goes on with the token that was chosen.
    ///
    /// # Errors
    /// It was not allowed: then the guide is where it was. Or the grammar is too costly, and the sequence cannot go on.
    pub fn accept(&mut self, token: u32) -> Result<(), GuideError> {
        self.prepared = false;
        let mut step = Step { before: self.place, fed: 0, run: Change::Kept };
        if let Err(error) = self.take(token, &mut step) {
            self.place = step.before;
            if matches!(step.run, Change::Entered) {
                self.run = None;
            }
            return Err(error);
        }
        if self.taken.len() == REMEMBERED {
            self.taken.pop_front();
        }
        self.taken.push_back(step);
        Ok(())
    }

    fn take(&mut self, token: u32, step: &mut Step) -> Result<(), GuideError> {
        if self.plan.vocabulary.is_end(token) {
            return self.take_end(token);
        }
        if !self.plan.vocabulary.has(token) {
            return Err(GuideError::NotAllowed { token });
        }
        match self.place {
            Place::Opening { thought, written } => self.take_opening(token, thought, written),
            Place::Thinking { .. } | Place::Free { .. } => self.take_text(token, step),
            Place::Call { trigger, tokens } => self.take_call(token, trigger, tokens + 1, step),
            Place::Held(held) => self.take_held(token, held, step),
            Place::Over { .. } => Err(GuideError::NotAllowed { token }),
        }
    }

    fn take_end(&mut self, token: u32) -> Result<(), GuideError> {
        let may_end = match self.place {
            Place::Opening { .. } => false,
            Place::Thinking { .. } | Place::Free { .. } | Place::Over { .. } => true,
            Place::Call { .. } | Place::Held(_) => self.run.as_mut().is_some_and(Run::may_end),
        };
        match self.place {
            _ if !may_end => return Err(GuideError::NotAllowed { token }),
            Place::Over { .. } => {}
            _ => self.place = Place::Over { cut: false },
        }
        Ok(())
    }

    fn take_opening(&mut self, token: u32, thought: usize, written: usize) -> Result<(), GuideError> {
        if self.due() != Some(token) {
            return Err(GuideError::NotAllowed { token });
        }
        let written = written + self.plan.vocabulary.bytes(token).len();
        let whole = self.plan.thoughts.get(thought).map_or(0, |thought| thought.open.len());
        let begun = Place::Thinking { thought, seen: Progress::default(), tokens: 0 };
        self.place = if written >= whole { begun } else { Place::Opening { thought, written } };
        Ok(())
    }

    /// Reads a token of reasoning or free text, through all marks that it completes.
    fn take_text(&mut self, token: u32, step: &mut Step) -> Result<(), GuideError> {
        let plan = Arc::clone(&self.plan);
        let mut bytes = plan.vocabulary.bytes(token);
        if let Place::Thinking { tokens, .. } = &mut self.place {
            *tokens += 1;
        }
        while let Some((meaning, behind)) = self.read(&plan, bytes) {
            bytes = behind;
            match meaning {
                Meaning::Opens(thought) => {
                    self.place = Place::Thinking { thought, seen: Progress::default(), tokens: 0 };
                }
                Meaning::Closes => {
                    self.place = self.answer(false);
                    if self.run.is_some() {
                        step.run = Change::Entered;
                        return self.begin(token, &[], bytes.trim_ascii_start(), step);
                    }
                }
                Meaning::Calls(number) => return self.call(token, number, bytes, step),
            }
        }
        Ok(())
    }

    /// Reads to the first mark that counts: what it means and what stands behind it.
    fn read<'a>(&mut self, plan: &Plan, mut bytes: &'a [u8]) -> Option<(Meaning, &'a [u8])> {
        loop {
            let (zone, seen) = match self.place {
                Place::Thinking { thought, seen, .. } => (&plan.thoughts.get(thought)?.zone, seen),
                Place::Free { seen, .. } => (&plan.free, seen),
                _ => return None,
            };
            let found = zone.watch.feed(seen, bytes);
            let (read, behind) = match found {
                Seen::On(_) => (bytes, &[][..]),
                Seen::Found { behind, .. } => bytes.split_at_checked(bytes.len() - behind)?,
            };
            self.note(read, if let Seen::On(progress) = found { progress } else { Progress::default() });
            bytes = behind;
            let Seen::Found { mark, .. } = found else { return None };
            let meaning = *zone.meanings.get(mark)?;
            if self.counts(plan, meaning) {
                return Some((meaning, behind));
            }
        }
    }

    fn note(&mut self, read: &[u8], progress: Progress) {
        match &mut self.place {
            Place::Thinking { seen, .. } => *seen = progress,
            Place::Free { seen, written } => {
                let text = if *written == 0 { read.trim_ascii_start() } else { read };
                (*seen, *written) = (progress, written.saturating_add(text.len()));
            }
            _ => {}
        }
    }

    /// Whether a mark counts where it stands.
    fn counts(&self, plan: &Plan, meaning: Meaning) -> bool {
        match (self.place, meaning) {
            (Place::Free { written, .. }, Meaning::Calls(number)) => {
                plan.triggers.get(number).is_some_and(|trigger| !trigger.only_first || written == trigger.mark.len())
            }
            _ => true,
        }
    }

    /// Begins a call whose mark is written.
    fn call(&mut self, token: u32, number: usize, behind: &[u8], step: &mut Step) -> Result<(), GuideError> {
        let plan = Arc::clone(&self.plan);
        let Some(trigger) = plan.triggers.get(number) else { return Ok(()) };
        step.run = Change::Entered;
        if plan.held.is_some() {
            self.place = self.answer(false);
            if let Place::Held(held) = &mut self.place {
                held.call = Some(1);
            }
        } else {
            self.run = Some(trigger.program.start());
            self.place = Place::Call { trigger: number, tokens: 1 };
        }
        self.begin(token, &trigger.opening, behind, step)
    }

    /// Tells a run that just began what is written of it already.
    fn begin(&mut self, token: u32, opening: &[u32], behind: &[u8], step: &mut Step) -> Result<(), GuideError> {
        let written = [opening, &self.plan.vocabulary.spell(behind)].concat();
        let Some(run) = &mut self.run else { return Ok(()) };
        step.fed = run.take(&written)?;
        if step.fed < written.len() { Err(GuideError::NotAllowed { token }) } else { Ok(()) }
    }

    fn take_call(&mut self, token: u32, trigger: usize, tokens: usize, step: &mut Step) -> Result<(), GuideError> {
        let Some(run) = &mut self.run else { return Ok(()) };
        feed(run, token, step)?;
        if run.may_end() {
            step.run = self.run.take().map_or(Change::Kept, Change::Left);
            let is_last = self.plan.triggers.get(trigger).is_some_and(|trigger| trigger.is_last);
            // What begins an answer only does not begin one behind a call.
            let on = Place::Free { seen: Progress::default(), written: usize::MAX };
            self.place = if is_last { Place::Over { cut: false } } else { on };
        } else if self.is_too_long(tokens) {
            self.place = Place::Over { cut: true };
        } else {
            self.place = Place::Call { trigger, tokens };
        }
        Ok(())
    }

    fn is_too_long(&self, tokens: usize) -> bool {
        self.plan.max_call_tokens.is_some_and(|most| tokens >= most)
    }

    fn take_held(&mut self, token: u32, held: Held, step: &mut Step) -> Result<(), GuideError> {
        let Some(run) = &mut self.run else { return Ok(()) };
        if let Err(error) = feed(run, token, step) {
            return if held.may_think { self.think(token, step) } else { Err(error) };
        }
        let (may_end, is_over) = (run.may_end(), run.is_over());
        let held = self.following(held, token, may_end);
        self.place = match held.call {
            _ if is_over => Place::Over { cut: false },
            Some(tokens) if self.is_too_long(tokens) => Place::Over { cut: true },
            _ => Place::Held(held),
        };
        Ok(())
    }

    /// A held answer behind one more token: whether it is in a call.
    fn following(&self, held: Held, token: u32, may_end: bool) -> Held {
        let again = Held { may_think: false, call: None, seen: Some(Progress::default()) };
        match held {
            Held { call: Some(_), .. } if may_end => again,
            Held { call: Some(tokens), .. } => Held { may_think: false, call: Some(tokens + 1), ..held },
            Held { call: None, .. } if self.plan.only_calls => Held { call: Some(1), ..again },
            Held { seen: Some(seen), .. } => {
                let bytes = self.plan.vocabulary.bytes(token);
                match self.plan.call_watch.feed(seen, bytes) {
                    Seen::Found { .. } => Held { call: Some(1), ..again },
                    Seen::On(next) if next != Progress::default() || bytes.trim_ascii().is_empty() => {
                        Held { seen: Some(next), ..again }
                    }
                    Seen::On(_) => Held { seen: None, ..again },
                }
            }
            Held { seen: None, .. } => Held { may_think: false, ..held },
        }
    }

    /// Leaves a held answer that has not begun for reasoning, by the first token of its mark.
    fn think(&mut self, token: u32, step: &mut Step) -> Result<(), GuideError> {
        let chosen = self.plan.thoughts.iter().position(|thought| thought.first == Some(token));
        let thought = chosen.ok_or(GuideError::NotAllowed { token })?;
        self.place = Place::Opening { thought, written: 0 };
        self.take_opening(token, thought, 0)?;
        step.run = self.run.take().map_or(Change::Kept, Change::Left);
        Ok(())
    }

    /// Takes back the last tokens, as if they had never been told: rejected speculation.
    ///
    /// # Errors
    /// Only the last few hundred can be; then the guide is where it was.
    pub fn rewind(&mut self, tokens: usize) -> Result<(), GuideError> {
        let kept = self.taken.len();
        if tokens > kept {
            return Err(GuideError::TooFar { tokens, kept });
        }
        self.prepared = false;
        for step in self.taken.split_off(kept - tokens).into_iter().rev() {
            self.place = step.before;
            match step.run {
                Change::Kept => {}
                Change::Entered => self.run = None,
                Change::Left(run) => self.run = Some(run),
            }
            if let Some(run) = &mut self.run {
                run.rewind(step.fed)?;
            }
        }
        Ok(())
    }

    /// Whether a call is being written. Then penalties and high temperatures do harm.
    pub fn in_call(&self) -> bool {
        matches!(self.place, Place::Call { .. } | Place::Held(Held { call: Some(_), .. }))
    }

    /// Whether the model is reasoning.
    pub fn in_reasoning(&self) -> bool {
        matches!(self.place, Place::Opening { .. } | Place::Thinking { .. })
    }

    /// Whether the answer must end now: only tokens that end it may follow, or one of them did.
    pub fn must_end(&self) -> bool {
        matches!(self.place, Place::Over { .. })
    }

    /// Whether it must end because a call became too long.
    pub fn was_cut(&self) -> bool {
        matches!(self.place, Place::Over { cut: true })
    }

    /// Ends the reasoning, now and whenever it begins again, once it is set: from any thread, at any time.
    pub fn stop_thinking(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop_thinking)
    }
}

fn feed(run: &mut Run, token: u32, step: &mut Step) -> Result<(), GuideError> {
    step.fed = run.take(&[token])?;
    if step.fed == 0 { Err(GuideError::NotAllowed { token }) } else { Ok(()) }
}

impl std::fmt::Debug for Guide {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guide").field("place", &self.place).finish_non_exhaustive()
    }
}
