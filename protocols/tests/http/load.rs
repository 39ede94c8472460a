//! Many clients at once, of all kinds.

use std::time::Duration;

use bantam_runtime::engine::SlotState;
use futures::future::join_all;
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{sleep, timeout};

use crate::client::{raw, request};
use crate::limits::idle;
use crate::server::{Server, until};

const PATIENCE: Duration = Duration::from_secs(60);

fn completion(fields: &Value) -> Vec<u8> {
    let mut body = json!({"temperature": 0, "ignore_eos": true});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    request("POST", "/v1/completions", &[], body.to_string().as_bytes())
}

/// A client that leaves before it has read everything.
#[derive(Clone, Debug)]
struct Leaver {
    prompt: usize,
    tokens: usize,
    stream: bool,
    /// When it leaves.
    after: Duration,
    /// Bytes of its request that it sends, of a hundred.
    sends: usize,
}

fn leaver() -> impl Strategy<Value = Leaver> {
    let sends = prop_oneof![1 => 0..100_usize, 9 => Just(100)];
    (1..300_usize, 1..300_usize, any::<bool>(), 0..60_000_u64, sends).prop_map(
        |(prompt, tokens, stream, after, sends)| Leaver {
            prompt,
            tokens,
            stream,
            after: Duration::from_micros(after),
            sends,
        },
    )
}

async fn come_and_leave(server: &Server, leaver: Leaver) {
    let prompt: Vec<_> = (0..leaver.prompt).map(|i| (i * 7 + leaver.tokens % 3) % 400).collect();
    let bytes = completion(&json!({"prompt": prompt, "max_tokens": leaver.tokens, "stream": leaver.stream}));
    let Ok(mut socket) = TcpStream::connect(server.address).await else { return };
    drop(socket.write_all(&bytes[..bytes.len() * leaver.sends / 100]).await);
    let mut answer = Vec::new();
    drop(timeout(leaver.after, socket.read_to_end(&mut answer)).await);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5, ..ProptestConfig::default() })]

    #[test]
    fn clients_that_leave_at_random_moments_leave_nothing_behind(
        waves in prop::collection::vec(prop::collection::vec(leaver(), 50), 2),
    ) {
        tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(async {
            let server = Server::with(|engine, _| engine.parallel = 6).await;
            for wave in waves {
                join_all(wave.into_iter().map(|leaver| come_and_leave(&server, leaver))).await;
            }
            until("all slots are idle", || idle(&server)).await;
            until("nobody is in the queue", || async { server.engine.status().await.queued == 0 }).await;
            let state = server.engine.status().await.state;
            assert_eq!(state.pages_held, 0, "{state:?}");
            let answer = raw(server.address, &completion(&json!({"prompt": "a", "max_tokens": 3}))).await;
            assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
        });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_reader_blocks_nobody() {
    let server = Server::with(|engine, _| engine.parallel = 2).await;
    // What the system holds for it is less than its answer.
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut slow = socket.connect(server.address).await.unwrap();
    let endless = json!({
        "messages": [{"role": "user", "content": "a"}], "max_tokens": 4000, "temperature": 0, "ignore_eos": true,
        "stream": true, "logprobs": true, "top_logprobs": 20,
    });
    let endless = request("POST", "/v1/chat/completions", &[], endless.to_string().as_bytes());
    slow.write_all(&endless).await.unwrap();
    let blocked = || async { server.engine.status().await.slots.iter().any(|slot| slot.state == SlotState::Blocked) };
    until("its slot waits for it", blocked).await;
    let others = (0..6).map(|i| completion(&json!({"prompt": [i, 2, 3], "max_tokens": 100})));
    let others: Vec<_> = others.collect();
    let mut answers = Box::pin(join_all(others.iter().map(|bytes| raw(server.address, bytes))));
    let mut byte = [0];
    let answers = loop {
        tokio::select! {
            answers = &mut answers => break answers,
            () = sleep(Duration::from_millis(5)) => drop(slow.read(&mut byte).await.unwrap()),
        }
    };
    assert!(answers.iter().all(|answer| answer.starts_with(b"HTTP/1.1 200")));
    assert!(blocked().await, "it still waits");
    let mut rest = Vec::new();
    timeout(PATIENCE, slow.read_to_end(&mut rest)).await.expect("the rest in time").unwrap();
    assert!(String::from_utf8_lossy(&rest).contains("data: [DONE]"), "it gets all of its answer");
}

/// The text of a whole answer.
fn text(answer: &[u8]) -> String {
    let answer = String::from_utf8(answer.to_vec()).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{answer}");
    let body: Value = serde_json::from_str(body).unwrap();
    body["choices"][0]["text"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_says_the_same_alone_and_among_others_new_and_from_the_cache() {
    let shared: Vec<usize> = (0..150).map(|i| (i * 13 + 5) % 400).collect();
    let body = |own: usize, sampling: &Value| {
        let mut prompt = shared.clone();
        prompt.extend((0..20 + own).map(|i| (i * 7 + own) % 400));
        let mut fields = json!({"prompt": prompt, "max_tokens": 60});
        fields.as_object_mut().unwrap().extend(sampling.as_object().unwrap().clone());
        completion(&fields)
    };
    for sampling in [json!({"temperature": 0}), json!({"temperature": 1.0, "seed": 7})] {
        let alone = Server::start().await;
        let expected = text(&raw(alone.address, &body(0, &sampling)).await);
        let server = Server::with(|engine, _| engine.parallel = 16).await;
        for round in ["new", "from the cache"] {
            let all: Vec<_> = (0..16).map(|own| body(own, &sampling)).collect();
            let answers = join_all(all.iter().map(|bytes| raw(server.address, bytes))).await;
            assert_eq!(text(&answers[0]), expected, "{round} among others, {sampling}");
        }
        assert_eq!(text(&raw(server.address, &body(0, &sampling)).await), expected, "from the cache, {sampling}");
        assert!(server.engine.status().await.max_step_sequences > 8);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_prompt_is_not_silent_and_ends_once() {
    let server = Server::with(|_, server| server.sse_keepalive = Duration::from_millis(5)).await;
    let prompt: Vec<_> = (0..3800).map(|i| (i * 7) % 400).collect();
    let bytes = completion(&json!({"prompt": prompt, "max_tokens": 20, "stream": true}));
    let answer = String::from_utf8(raw(server.address, &bytes).await).unwrap();
    let (silence, told) = answer.split_once("data: ").expect("an event");
    assert!(silence.matches(": ping").count() > 1, "comments come while the prompt is computed: {silence}");
    assert_eq!(told.matches("[DONE]").count(), 1);
}
