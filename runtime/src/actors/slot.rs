//! A slot: turns the tokens of one running sequence into its client's events.
//!
//! Messages: [`SlotMessage::Begin`] gives the slot a sequence. From then on a task of the slot reads tokens from a
//! bounded channel, decodes them, holds back what may become a stop text, and writes events to the client's bounded
//! channel. So a client that does not read blocks its own slot and nothing else. The task ends with exactly one terminal
//! event and tells the scheduler that the slot is free.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use bantam_text::Tokenizer;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::mpsc;

use super::{
    job::{Output, TokenEvent},
    scheduler::SchedulerMessage,
    speech::{Ending, Heard, Speech},
    turns::TurnsMessage,
};
use crate::{
    engine::{Delta, Event, FinishReason, Outcome, Part, Piece, TokenLogprob, Turn},
    sampling::{Logprobs, Sampled},
    turns::TurnSeed,
};

/// Tokens that may wait between the scheduler and a slot before its sequence is left out of steps.
pub(crate) const TOKEN_CHANNEL: usize = 32;

/// A client that reads nothing for so long has gone: its slot is for others.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a slot is asked.
#[derive(Debug)]
pub(crate) enum SlotMessage {
    /// Serve this sequence; the slot is idle.
    Begin(Box<Assignment>),
    /// Fail.
    #[cfg(test)]
    Fail,
}

/// A sequence given to a slot.
#[derive(Debug)]
pub(crate) struct Assignment {
    pub(crate) output: Output,
    pub(crate) speech: Speech,
    pub(crate) tokens: mpsc::Receiver<TokenEvent>,
    /// Set by the scheduler when it left the sequence out because `tokens` was full.
    pub(crate) blocked: Arc<AtomicBool>,
}

/// What a slot needs to know.
#[derive(Clone)]
pub(crate) struct SlotContext {
    pub(crate) id: usize,
    pub(crate) scheduler: ActorRef<SchedulerMessage>,
    pub(crate) turns: ActorRef<TurnsMessage>,
    pub(crate) tokenizer: Tokenizer,
    /// Tokens that end a generation.
    pub(crate) end_tokens: Arc<[u32]>,
}

/// The actor.
pub(crate) struct Slot;

impl Actor for Slot {
    type Msg = SlotMessage;
    type State = SlotContext;
    type Arguments = SlotContext;

    async fn pre_start(
        &self,
        _: ActorRef<Self::Msg>,
        context: Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        Ok(context)
    }

    async fn handle(
        &self,
        _: ActorRef<Self::Msg>,
        message: Self::Msg,
        context: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        #[cfg_attr(not(test), allow(clippy::infallible_destructuring_match, reason = "tests have a message more"))]
        let assignment = match message {
            SlotMessage::Begin(assignment) => assignment,
            #[cfg(test)]
            SlotMessage::Fail => panic!("injected"),
        };
        let context = context.clone();
        tokio::spawn(async move {
            let _busy = Busy { slot: context.id, scheduler: context.scheduler.clone() };
            Pump::new(context, *assignment).run().await;
        });
        Ok(())
    }
}

/// A slot that serves a sequence. It is free again when this is dropped, in whatever way the sequence ends.
struct Busy {
    slot: usize,
    scheduler: ActorRef<SchedulerMessage>,
}

impl Drop for Busy {
    fn drop(&mut self) {
        drop(self.scheduler.cast(SchedulerMessage::SlotFree(self.slot)));
    }
}

/// The client has gone.
struct Gone;

/// A turn that will be remembered.
struct OpenTurn {
    seed: TurnSeed,
    /// All that was drawn.
    tokens: Vec<u32>,
    /// All that was sent.
    said: Turn,
    /// Whether a text ended it, which is drawn and not sent.
    cut: bool,
}

impl OpenTurn {
    /// The text of the turn as the model wrote it, without control tokens. None if it is not known where it was cut.
    fn text(&self, tokenizer: &Tokenizer) -> Option<String> {
        if self.cut {
            let only_text = self.said.parts.iter().all(|part| matches!(part, Part::Content(_)));
            return only_text.then(|| self.said.content());
        }
        let mut decoder = tokenizer.stream(true);
        let text: String = self.tokens.iter().map(|token| decoder.push(*token)).collect();
        Some(text + decoder.finish().trim_end_matches(char::REPLACEMENT_CHARACTER))
    }
}

/// Reads one sequence's tokens and writes its client's events.
struct Pump {
    context: SlotContext,
    output: Output,
    tokens: mpsc::Receiver<TokenEvent>,
    blocked: Arc<AtomicBool>,
    speech: Speech,
    cached_tokens: usize,
    generated: usize,
    /// Tokens drawn while the model thought.
    reasoning: usize,
    /// Whether a call of a tool is complete.
    called: bool,
    first_token: Option<Instant>,
    turn: Option<OpenTurn>,
}

impl Pump {
    fn new(context: SlotContext, assignment: Assignment) -> Self {
        let Assignment { mut output, speech, tokens, blocked } = assignment;
        let open = |seed| OpenTurn { seed, tokens: Vec::new(), said: Turn::default(), cut: false };
        let turn = output.turn.take().map(open);
        Pump {
            context,
            output,
            tokens,
            blocked,
            speech,
            cached_tokens: 0,
            generated: 0,
            reasoning: 0,
            called: false,
            first_token: None,
            turn,
        }
    }

    async fn run(mut self) {
        self.serve().await;
        // A client that leaves may still go on from what it has.
        self.remember(false);
    }

    async fn serve(&mut self) {
        while let Some(event) = self.next_token().await {
            let done = match event {
                TokenEvent::Started { cached_tokens, miss } => {
                    self.cached_tokens = cached_tokens;
                    self.first_token = Some(Instant::now());
                    self.send(Event::Started { cached_tokens, miss }).await
                }
                TokenEvent::Token(sampled) => match self.token(sampled).await {
                    Ok(true) => return,
                    Ok(false) => Ok(()),
                    Err(gone) => Err(gone),
                },
                TokenEvent::End { end_token } => return self.end(end_token).await,
                TokenEvent::Failed(why) => return drop(self.send(Event::Failed(why)).await),
            };
            if done.is_err() {
                return self.leave();
            }
        }
    }

    async fn next_token(&mut self) -> Option<TokenEvent> {
        let event = self.tokens.recv().await;
        if self.tokens.len() <= TOKEN_CHANNEL / 2 && self.blocked.swap(false, Ordering::AcqRel) {
            drop(self.context.scheduler.cast(SchedulerMessage::Unblocked));
        }
        event
    }

    async fn send(&self, event: Event) -> Result<(), Gone> {
        self.output.events.send_timeout(event, PATIENCE).await.map_err(|_| Gone)
    }

    async fn show(&mut self, delta: Delta) -> Result<(), Gone> {
        self.called |= delta.pieces.iter().any(|piece| matches!(piece, Piece::CallEnd { .. }));
        if let Some(turn) = &mut self.turn {
            delta.pieces.iter().for_each(|piece| turn.said.add(piece.clone()));
        }
        self.send(Event::Delta(delta)).await
    }

    /// Has the turn remembered, once, as far as it came.
    fn remember(&mut self, ended: bool) {
        let Some(mut turn) = self.turn.take() else { return };
        let Some(text) = turn.text(&self.context.tokenizer) else { return };
        let sequel = turn.seed.take_sequel(&text, &turn.said).filter(|_| ended).map(Box::new);
        let OpenTurn { seed, tokens, .. } = turn;
        if let Some(turn) = seed.turn(&tokens, &text, &self.context.tokenizer, &self.context.end_tokens) {
            drop(self.context.turns.cast(TurnsMessage::Remember(turn, sequel)));
        }
    }

    fn leave(&self) {
        self.output.cancel.set();
        drop(self.context.scheduler.cast(SchedulerMessage::Cancel(self.output.id)));
    }

    /// Handles a token; true if it completed a text that ends the answer, after which the request has ended.
    async fn token(&mut self, sampled: Sampled) -> Result<bool, Gone> {
        self.generated += 1;
        self.reasoning += usize::from(self.speech.is_reasoning());
        self.turn.iter_mut().for_each(|turn| turn.tokens.push(sampled.token));
        let Heard { pieces, ending } = self.speech.push(sampled.token);
        let tokens: Vec<_> = sampled.logprobs.iter().map(|l| self.logprob(&sampled, l)).collect();
        if !pieces.is_empty() || !tokens.is_empty() {
            self.show(Delta { pieces, tokens }).await?;
        }
        let Some(ending) = ending else { return Ok(false) };
        self.leave();
        self.finish(self.reason(true), Some(ending)).await?;
        Ok(true)
    }

    fn logprob(&self, sampled: &Sampled, logprobs: &Logprobs) -> TokenLogprob {
        let report = |&(token, logprob): &(u32, f32)| TokenLogprob {
            token,
            bytes: self.context.tokenizer.token_bytes(token, false).into(),
            shown: !self.context.tokenizer.token_bytes(token, true).is_empty(),
            logprob,
            top: Vec::new(),
        };
        let top = logprobs.top.iter().map(report).collect();
        TokenLogprob { top, ..report(&(sampled.token, logprobs.sampled)) }
    }

    async fn end(&mut self, end_token: bool) {
        let Heard { pieces, ending } = self.speech.finish();
        if !pieces.is_empty() && self.show(Delta { pieces, tokens: Vec::new() }).await.is_err() {
            return;
        }
        let reason = self.reason(end_token || ending.is_some());
        drop(self.finish(reason, ending).await);
    }

    /// Why the answer ends: by itself or by a text, or because it may be no longer.
    fn reason(&self, by_itself: bool) -> FinishReason {
        match (by_itself, self.called) {
            (true, true) => FinishReason::ToolCalls,
            (true, false) => FinishReason::Stop,
            (false, _) => FinishReason::Length,
        }
    }

    async fn finish(&mut self, reason: FinishReason, ending: Option<Ending>) -> Result<(), Gone> {
        self.turn.iter_mut().for_each(|turn| turn.cut = ending.is_some());
        self.remember(true);
        let first = self.first_token.unwrap_or_else(Instant::now);
        let stop_text = match ending {
            Some(Ending::Stop(text)) => Some(text),
            Some(Ending::Turn) | None => None,
        };
        self.send(Event::Finished(Outcome {
            reason,
            prompt_tokens: self.output.prompt_tokens,
            cached_tokens: self.cached_tokens,
            completion_tokens: self.generated,
            reasoning_tokens: self.reasoning,
            stop_text,
            time_to_first_token: first.duration_since(self.output.submitted),
            decode_time: first.elapsed(),
        }))
        .await
    }
}
