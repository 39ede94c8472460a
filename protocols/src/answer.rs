//! A running generation as the protocols consume it, told as a whole or as server-sent events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderName, HeaderValue};
use axum::response::sse::{self, Sse};
use axum::response::{IntoResponse, Response};
use bantam_runtime::engine::{Delta, Engine, Event, Generation, Outcome, StopThinking, TokenLogprob, Turn};
use futures::future::{self, FutureExt, try_join_all};
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use serde::Serialize;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::error::ApiError;
use crate::live::{Entry, Live};
use crate::log::{LoggedElsewhere, PendingRow};
use crate::metrics::Observation;
use crate::transcript::Seen;

/// A generation, its row of the log and its part of the metrics. Dropping it cancels the generation and writes both.
pub(crate) struct Answer {
    events: BoxStream<'static, Event>,
    prompt_tokens: usize,
    row: PendingRow,
    observation: Observation,
    stop_thinking: StopThinking,
    /// While the answer is under way and clients know it by a name.
    known: Option<Entry>,
    /// Number of the request.
    request: u64,
    /// The text of its prompt, if transcripts are made.
    prompt: Option<Arc<str>>,
    /// Where to ask how far its prompt is, if that is told.
    progress: Option<Engine>,
}

/// How far a prompt is.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Progress {
    /// Its tokens.
    pub(crate) total: usize,
    /// Of these, found in the cache.
    pub(crate) cache: usize,
    /// Of these, computed or found so far.
    pub(crate) processed: usize,
}

/// Time between two words about it.
const PROGRESS_EVERY: Duration = Duration::from_millis(500);

/// All of a finished answer.
#[derive(Debug)]
pub(crate) struct Whole {
    pub(crate) turn: Turn,
    /// The tokens, if log-probabilities were asked for.
    pub(crate) tokens: Vec<TokenLogprob>,
    pub(crate) outcome: Outcome,
}

impl Answer {
    pub(crate) fn new(generation: Generation, row: PendingRow, observation: Observation) -> Self {
        let next = |mut generation: Generation| async move { Some((generation.next().await?, generation)) };
        let (request, stop_thinking, prompt) = (generation.id(), generation.stop_thinking(), generation.prompt());
        let prompt_tokens = generation.prompt_tokens();
        let events = stream::unfold(generation, next).boxed();
        Answer { events, prompt_tokens, row, observation, stop_thinking, known: None, request, prompt, progress: None }
    }

    /// Tokens of the prompt.
    pub(crate) fn prompt_tokens(&self) -> usize {
        self.prompt_tokens
    }

    /// Tells, if that is `wanted`, how far its prompt is until that is done.
    pub(crate) fn with_progress(mut self, wanted: bool, engine: &Engine) -> Self {
        self.progress = wanted.then(|| engine.clone());
        self
    }

    /// Lets others end its thinking by this name until it has ended.
    pub(crate) fn known_as(mut self, live: &Arc<Live>, id: &str) -> Self {
        self.known = Some(Live::enter(live, id, self.stop_thinking.clone()));
        self
    }

    /// The next event. The last one is always `Finished` or `Failed`.
    async fn next(&mut self) -> Option<Event> {
        let event = self.events.next().await?;
        self.row.observe(&event);
        self.observation.observe(&event);
        Some(event)
    }

    /// Ends it, as if nothing more came, when this says so.
    pub(crate) fn until(mut self, stopped: oneshot::Receiver<()>) -> Self {
        let stopped = stopped.then(|said| async move {
            // Nobody is left who could say so.
            if said.is_err() {
                future::pending::<()>().await;
            }
        });
        self.events = self.events.take_until(stopped).boxed();
        self
    }

    /// The same answer with other events, of which again the last, and no other, is terminal.
    pub(crate) fn rewritten(
        mut self,
        rewrite: impl FnOnce(BoxStream<'static, Event>) -> BoxStream<'static, Event>,
    ) -> Self {
        self.events = rewrite(self.events);
        self
    }

    /// Lets the protocol follow the answer to its end, and tells nobody.
    pub(crate) async fn drive<P: Frames>(mut self, mut protocol: P) -> Result<P, ApiError> {
        drop(protocol.begun());
        while let Some(event) = self.next().await {
            match event {
                Event::Started { cached_tokens, .. } => drop(protocol.started(cached_tokens)),
                Event::Delta(delta) => drop(protocol.delta(delta)),
                Event::Finished(outcome) => drop(protocol.finished(&outcome)),
                Event::Failed(why) => {
                    let error = ApiError::failed(&why);
                    protocol.failed(&error);
                    return Err(error);
                }
            }
        }
        protocol.ended();
        Ok(protocol)
    }

    /// Waits for the end and answers with what `body` makes of it, or with the failure.
    pub(crate) async fn respond(self, body: impl FnOnce(Whole) -> Response) -> Response {
        let seen = seen([&self]);
        with_seen(self.collect().await.map_or_else(IntoResponse::into_response, body), seen)
    }

    /// The same of several answers, or the first failure.
    pub(crate) async fn respond_all(answers: Vec<Answer>, body: impl FnOnce(Vec<Whole>) -> Response) -> Response {
        let seen = seen(&answers);
        let wholes = try_join_all(answers.into_iter().map(Answer::collect)).await;
        with_seen(wholes.map_or_else(IntoResponse::into_response, body), seen)
    }

    async fn collect(mut self) -> Result<Whole, ApiError> {
        let (mut turn, mut tokens) = (Turn::default(), Vec::new());
        while let Some(event) = self.next().await {
            match event {
                Event::Started { .. } => {}
                Event::Delta(delta) => {
                    delta.pieces.into_iter().for_each(|piece| turn.add(piece));
                    tokens.extend(delta.tokens);
                }
                Event::Finished(outcome) => return Ok(Whole { turn, tokens, outcome }),
                Event::Failed(why) => return Err(ApiError::failed(&why)),
            }
        }
        Err(ApiError::internal("The generation ended without a result"))
    }

    /// Answers at once, then tells each event as it comes. While nothing happens something goes out every `keepalive`, so
    /// that neither clients nor proxies take a long prompt for a dead server.
    pub(crate) fn stream(self, protocol: impl Frames, keepalive: Duration) -> Response {
        let seen = seen([&self]);
        with_seen(respond_with(frames(self, protocol, keepalive)), seen)
    }

    /// The same of several answers at once; what `ending` makes of their outcomes, in their order, comes last. The first
    /// failure ends all.
    pub(crate) fn stream_all<P: Frames>(
        answers: Vec<(Answer, P)>,
        ending: impl FnOnce(&[Outcome]) -> Vec<Frame> + Send + 'static,
        keepalive: Duration,
    ) -> Response {
        let seen = seen(answers.iter().map(|(answer, _)| answer));
        with_seen(respond_with(all_frames(answers, ending, keepalive)), seen)
    }
}

/// A stream that is over at once.
pub(crate) fn told_at_once(frames: Vec<Frame>) -> Response {
    respond_with(stream::iter(frames))
}

/// A response with these frames, as they come.
pub(crate) fn respond_with(frames: impl Stream<Item = Frame> + Send + 'static) -> Response {
    let events = frames.map(|frame| Ok::<_, Infallible>(sse::Event::from(frame)));
    let mut response = Sse::new(events).into_response();
    response.headers_mut().insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    response
}

/// What the model sees, for transcripts.
pub(crate) fn seen<'a>(answers: impl IntoIterator<Item = &'a Answer>) -> Seen {
    Seen(answers.into_iter().filter_map(|answer| answer.prompt.clone()).collect())
}

/// The response of generations, whose rows their answers write.
pub(crate) fn with_seen(mut response: Response, seen: Seen) -> Response {
    response.extensions_mut().insert(LoggedElsewhere);
    response.extensions_mut().insert(seen);
    response
}

/// One server-sent event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// One without a name.
    Data(String),
    /// One with a name.
    Event(&'static str, String),
    /// Nothing that a client takes note of.
    Comment(&'static str),
}

impl From<Frame> for sse::Event {
    fn from(frame: Frame) -> Self {
        match frame {
            Frame::Data(data) => sse::Event::default().data(data),
            Frame::Event(name, data) => sse::Event::default().event(name).data(data),
            Frame::Comment(text) => sse::Event::default().comment(text),
        }
    }
}

/// How a protocol tells a generation as a stream.
pub(crate) trait Frames: Send + 'static {
    /// The request is taken, and nothing is computed yet.
    fn begun(&mut self) -> Vec<Frame> {
        Vec::new()
    }
    /// The prompt is computed; so many of its tokens were found in the cache.
    fn started(&mut self, cached_tokens: usize) -> Vec<Frame>;
    /// More of the answer.
    fn delta(&mut self, delta: Delta) -> Vec<Frame>;
    /// The end of a successful stream.
    fn finished(&mut self, outcome: &Outcome) -> Vec<Frame>;
    /// The end of one that failed.
    fn failed(&mut self, error: &ApiError) -> Vec<Frame>;
    /// How far the prompt is, where that is asked for.
    fn progress(&mut self, _: Progress) -> Vec<Frame> {
        self.waiting()
    }
    /// Nothing more comes, be it that the end has been told or that the answer was cut off.
    fn ended(&mut self) -> Vec<Frame> {
        Vec::new()
    }
    /// A sign of life, while nothing happens.
    fn waiting(&mut self) -> Vec<Frame> {
        vec![Frame::Comment("ping")]
    }
}

/// How far the prompt of a request is; `None` where that is not told, or it is not being computed.
async fn progress(engine: Option<Engine>, request: u64) -> Option<Progress> {
    let status = engine?.status().await;
    let slot = status.slots.iter().find(|slot| slot.request == Some(request))?;
    Some(Progress { total: slot.prompt_tokens, cache: slot.cached_tokens, processed: slot.prompt_done })
}

/// Something that happened to an answer, as it is told.
enum Told {
    Frames(Vec<Frame>),
    Finished(Vec<Frame>, Outcome),
    Failed(Vec<Frame>),
}

impl Told {
    /// Whether nothing of it goes out.
    fn is_silent(&self) -> bool {
        matches!(self, Told::Frames(frames) if frames.is_empty())
    }
}

fn told(
    mut answer: Answer,
    mut protocol: impl Frames,
    keepalive: Duration,
) -> impl Stream<Item = Told> + Send + 'static {
    async_stream::stream! {
        yield Told::Frames(protocol.begun());
        // When something went out last: an answer may go on for long in ways that a protocol does not tell.
        let mut heard = Instant::now();
        loop {
            let silence = if answer.progress.is_some() { keepalive.min(PROGRESS_EVERY) } else { keepalive };
            let told = match tokio::time::timeout(silence.saturating_sub(heard.elapsed()), answer.next()).await {
                Err(_) => Told::Frames(match progress(answer.progress.clone(), answer.request).await {
                    Some(progress) => protocol.progress(progress),
                    None => protocol.waiting(),
                }),
                Ok(Some(Event::Started { cached_tokens, .. })) => {
                    answer.progress = None;
                    Told::Frames(protocol.started(cached_tokens))
                }
                Ok(Some(Event::Delta(delta))) => Told::Frames(protocol.delta(delta)),
                Ok(Some(Event::Finished(outcome))) => Told::Finished(protocol.finished(&outcome), outcome),
                Ok(Some(Event::Failed(why))) => Told::Failed(protocol.failed(&ApiError::failed(&why))),
                Ok(None) => break,
            };
            let told = match told.is_silent() && heard.elapsed() >= silence {
                true => Told::Frames(protocol.waiting()),
                false => told,
            };
            if !told.is_silent() {
                heard = Instant::now();
            }
            yield told;
        }
        yield Told::Frames(protocol.ended());
    }
}

fn frames(answer: Answer, protocol: impl Frames, keepalive: Duration) -> impl Stream<Item = Frame> + Send + 'static {
    let frames = |told| match told {
        Told::Frames(frames) | Told::Finished(frames, _) | Told::Failed(frames) => stream::iter(frames),
    };
    told(answer, protocol, keepalive).flat_map(frames)
}

fn all_frames<P: Frames>(
    answers: Vec<(Answer, P)>,
    ending: impl FnOnce(&[Outcome]) -> Vec<Frame> + Send + 'static,
    keepalive: Duration,
) -> impl Stream<Item = Frame> + Send + 'static {
    let streams = answers.into_iter().enumerate();
    let streams =
        streams.map(|(index, (answer, protocol))| told(answer, protocol, keepalive).map(move |told| (index, told)));
    let mut all = stream::select_all(streams.map(StreamExt::boxed));
    async_stream::stream! {
        let mut outcomes: Vec<_> = all.iter().map(|_| None).collect();
        while let Some((index, told)) = all.next().await {
            let (frames, failed) = match told {
                Told::Frames(frames) => (frames, false),
                Told::Finished(frames, outcome) => {
                    outcomes.iter_mut().skip(index).take(1).for_each(|told| *told = Some(outcome.clone()));
                    (frames, false)
                }
                Told::Failed(frames) => (frames, true),
            };
            for frame in frames {
                yield frame;
            }
            if failed {
                return;
            }
        }
        for frame in ending(&outcomes.into_iter().flatten().collect::<Vec<_>>()) {
            yield frame;
        }
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! Answers from a script, for the tests of the protocols.

    use std::sync::Arc;
    use std::time::Duration;

    use bantam_runtime::engine::FinishReason;

    use super::*;
    use crate::log::{Arrival, LogLevel, testing};
    use crate::metrics::Requests;

    /// Longer than any script takes.
    pub(crate) const KEEPALIVE: Duration = Duration::from_secs(60);

    /// Of a request that arrives now, among requests that nobody asks about.
    pub(crate) fn observation() -> Observation {
        Observation::new(Arc::new(Requests::new()), Arrival::now())
    }

    pub(crate) fn scripted(events: Vec<Event>) -> Answer {
        let (log, _) = testing::log(LogLevel::Quiet);
        let events = stream::iter(events).boxed();
        let stop_thinking = StopThinking::default();
        Answer {
            events,
            prompt_tokens: 10,
            row: testing::pending(&log),
            observation: observation(),
            stop_thinking,
            known: None,
            request: 0,
            prompt: None,
            progress: None,
        }
    }

    impl Answer {
        /// All of an answer that ends well.
        pub(crate) async fn whole(self) -> Whole {
            self.collect().await.unwrap()
        }
    }

    pub(crate) fn text(text: &str) -> Event {
        Event::Delta(Delta::content(text))
    }

    /// A piece of one token with its probability.
    pub(crate) fn token(text: &str) -> Event {
        let token = |bytes: &[u8], logprob| TokenLogprob {
            token: 7,
            bytes: bytes.to_vec(),
            shown: true,
            logprob,
            top: Vec::new(),
        };
        let top = vec![token(text.as_bytes(), -0.5), token(&[0xe2, 0x82], f32::NEG_INFINITY)];
        let tokens = vec![TokenLogprob { top, ..token(text.as_bytes(), -0.5) }];
        Event::Delta(Delta { tokens, ..Delta::content(text) })
    }

    /// The end of a prompt of 10 tokens, 4 of them cached, and an answer of 2.
    pub(crate) fn finished(reason: FinishReason) -> Event {
        Event::Finished(Outcome {
            reason,
            prompt_tokens: 10,
            cached_tokens: 4,
            completion_tokens: 2,
            reasoning_tokens: 0,
            stop_text: None,
            time_to_first_token: Duration::from_millis(20),
            decode_time: Duration::from_millis(10),
        })
    }

    /// The data of all events of a response.
    pub(crate) async fn data(response: Response) -> Vec<String> {
        let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        let body = String::from_utf8(bytes.to_vec()).unwrap();
        body.lines().filter_map(|line| line.strip_prefix("data: ")).map(str::to_owned).collect()
    }

    /// The data of all events of a stream.
    pub(crate) async fn told(answer: Answer, protocol: impl Frames) -> Vec<String> {
        let data = |frame| match frame {
            Frame::Data(data) | Frame::Event(_, data) => data,
            Frame::Comment(text) => format!(": {text}"),
        };
        frames(answer, protocol, KEEPALIVE).map(data).collect().await
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use bantam_runtime::engine::{Failure, FinishReason};

    use super::*;
    use crate::log::{LogLevel, testing as log_testing};

    /// Tells only that something happened.
    struct Plain;

    impl Frames for Plain {
        fn started(&mut self, _: usize) -> Vec<Frame> {
            Vec::new()
        }
        fn delta(&mut self, delta: Delta) -> Vec<Frame> {
            vec![Frame::Data(delta.text())]
        }
        fn finished(&mut self, _: &Outcome) -> Vec<Frame> {
            vec![Frame::Data("end".into())]
        }
        fn failed(&mut self, error: &ApiError) -> Vec<Frame> {
            vec![Frame::Data(error.message.clone())]
        }
    }

    async fn body(response: Response) -> String {
        let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    fn late(after: Duration, events: Vec<Event>) -> Answer {
        let events = stream::once(tokio::time::sleep(after)).flat_map(move |()| stream::iter(events.clone()));
        Answer { events: events.boxed(), ..testing::scripted(Vec::new()) }
    }

    #[tokio::test(start_paused = true)]
    async fn comments_go_out_while_a_prompt_is_computed() {
        let events = vec![testing::text("a"), testing::finished(FinishReason::Stop)];
        let response = late(Duration::from_millis(5500), events).stream(Plain, Duration::from_secs(1));
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let body = body(response).await;
        assert_eq!(body.matches(": ping\n\n").count(), 5, "{body}");
        assert!(body.ends_with("data: a\n\ndata: end\n\n"), "{body}");
    }

    /// Tells nothing but the end.
    struct Silent;

    impl Frames for Silent {
        fn started(&mut self, _: usize) -> Vec<Frame> {
            Vec::new()
        }
        fn delta(&mut self, _: Delta) -> Vec<Frame> {
            Vec::new()
        }
        fn finished(&mut self, _: &Outcome) -> Vec<Frame> {
            vec![Frame::Data("end".into())]
        }
        fn failed(&mut self, error: &ApiError) -> Vec<Frame> {
            vec![Frame::Data(error.message.clone())]
        }
    }

    #[tokio::test(start_paused = true)]
    async fn comments_go_out_while_an_answer_goes_on_in_ways_that_are_not_told() {
        let tokens = stream::iter(0..55).then(|_| async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            testing::text("a")
        });
        let events = tokens.chain(stream::iter([testing::finished(FinishReason::Stop)])).boxed();
        let answer = Answer { events, ..testing::scripted(Vec::new()) };
        let body = body(answer.stream(Silent, Duration::from_secs(1))).await;
        assert_eq!(body, format!("{}data: end\n\n", ": ping\n\n".repeat(5)));
    }

    #[tokio::test]
    async fn a_whole_answer_is_all_its_pieces() {
        let events = vec![testing::text("a"), testing::token("b"), testing::finished(FinishReason::Stop)];
        let whole = testing::scripted(events).collect().await.unwrap();
        assert_eq!((whole.turn.content().as_str(), whole.tokens.len()), ("ab", 1));
    }

    #[tokio::test]
    async fn a_failure_under_way_is_a_500_or_the_end_of_the_stream() {
        let events = vec![testing::text("a"), Event::Failed(Failure::Fault("the executor stopped".into()))];
        let response = testing::scripted(events.clone()).respond(|_| unreachable!()).await;
        assert_eq!(response.status(), 500);
        assert!(body(response).await.contains("the executor stopped"));
        assert_eq!(testing::told(testing::scripted(events), Plain).await, ["a", "the executor stopped"]);
    }

    #[tokio::test]
    async fn dropping_the_stream_drops_the_generation() {
        let (sender, receiver) = tokio::sync::mpsc::channel::<Event>(1);
        let (log, written) = log_testing::log(LogLevel::Normal);
        let events = stream::unfold(receiver, |mut r| async move { Some((r.recv().await?, r)) });
        let row = log_testing::pending(&log);
        let answer = Answer { events: events.boxed(), row, ..testing::scripted(Vec::new()) };
        let mut stream = Box::pin(frames(answer, Plain, testing::KEEPALIVE));
        sender.send(testing::text("a")).await.unwrap();
        assert_eq!(pin!(&mut stream).next().await, Some(Frame::Data("a".into())));
        drop(stream);
        assert!(sender.is_closed());
        log.flush().await;
        assert!(written.text().contains("gone"));
    }
}
