//! A model that says what it is told: real checkpoints' vocabularies, templates and marks around a program that computes
//! nothing and rates the next token of a script highest.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::Duration;

use bantam_backend::{Program, StateGroup, Step, StepError, Trace};
use bantam_gguf::GgufFile;
use bantam_graph::StateKind;
use bantam_runtime::engine::{Engine, EngineConfig};
use bantam_text::{Specials, Tokenizer, TokenizerSpec};

/// What is said next, and how fast is read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Script(Arc<Mutex<Said>>);

#[derive(Debug, Default)]
struct Said {
    /// Backwards.
    tokens: Vec<u32>,
    /// What a token of a prompt takes.
    reading: Duration,
    /// What a token that is said takes.
    speaking: Duration,
}

impl Script {
    fn set(&self, mut tokens: Vec<u32>) {
        tokens.reverse();
        self.0.lock().unwrap().tokens = tokens;
    }

    fn next(&self) -> Option<u32> {
        self.0.lock().unwrap().tokens.pop()
    }

    fn reading(&self) -> Duration {
        self.0.lock().unwrap().reading
    }

    fn speaking(&self) -> Duration {
        self.0.lock().unwrap().speaking
    }
}

/// The program.
struct Actor {
    script: Script,
    groups: Vec<StateGroup>,
    vocab: usize,
    /// Said when the script is at its end.
    end: u32,
    logits: Vec<f32>,
}

impl Program for Actor {
    fn groups(&self) -> &[StateGroup] {
        &self.groups
    }

    fn vocab(&self) -> usize {
        self.vocab
    }

    fn weight_bytes(&self) -> u64 {
        0
    }

    fn weight_bytes_per_token(&self) -> u64 {
        0
    }

    fn reserve_pages(&mut self, _: usize, _: usize) -> Result<(), StepError> {
        Ok(())
    }

    fn run(&mut self, step: &Step) -> Result<(), StepError> {
        let prompt: usize = step.sequences.iter().map(|sequence| sequence.rows).filter(|rows| *rows > 1).sum();
        sleep(self.script.reading() * prompt as u32 + self.script.speaking());
        self.logits.clear();
        for _ in &step.logit_rows {
            let next = self.script.next().unwrap_or(self.end) as usize;
            // Where the script is forbidden the end comes next, then the lowest token.
            let rate = |token: usize| match token {
                _ if token == next => 100.0,
                _ if token == self.end as usize => 50.0,
                _ => 0.0,
            };
            self.logits.extend((0..self.vocab).map(rate));
        }
        Ok(())
    }

    fn run_traced(&mut self, step: &Step, _: Trace<'_>) -> Result<(), StepError> {
        self.run(step)
    }

    fn logits(&self) -> &[f32] {
        &self.logits
    }

    fn save_page(&self, _: usize, _: u32, _: usize, _: &mut Vec<u8>) -> Result<(), StepError> {
        Ok(())
    }

    fn load_page(&mut self, _: usize, _: u32, _: usize, _: &[u8]) -> Result<(), StepError> {
        Ok(())
    }
}

/// A checkpoint that says what it is told.
pub(crate) struct Acting {
    pub(crate) engine: Engine,
    tokenizer: Tokenizer,
    script: Script,
}

impl Acting {
    /// One with the vocabulary, template and family of a checkpoint among the fixtures.
    pub(crate) async fn of(model: &str, change: impl FnOnce(&mut EngineConfig)) -> Acting {
        let path =
            PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/models").join(model).join("model.gguf");
        let file = GgufFile::open(&path).unwrap();
        let tokenizer = Tokenizer::new(TokenizerSpec::from_gguf(file.metadata()).unwrap()).unwrap();
        let end = *tokenizer.end_ids().first().unwrap();
        let mut config = EngineConfig::new(path);
        change(&mut config);
        let group = StateGroup { kind: StateKind::PerToken, page_tokens: 32, page_bytes: 64, states: vec![0] };
        let script = Script::default();
        let vocab = tokenizer.vocab_size();
        let program = Actor { script: script.clone(), groups: vec![group], vocab, end, logits: Vec::new() };
        let engine = Engine::acting(config, Box::new(program)).await.unwrap();
        Acting { engine, tokenizer, script }
    }

    /// Has the next answer be this, control tokens as they are spelled, and then the end.
    pub(crate) fn say(&self, text: &str) {
        let tokens = self.tokenizer.encode(text, Specials::Parse).unwrap();
        assert_eq!(
            String::from_utf8_lossy(&self.tokenizer.decode(&tokens, false)),
            text,
            "the vocabulary can spell it"
        );
        self.script.set(tokens);
    }

    /// Has each token that is said take so long.
    pub(crate) fn speak_slowly(&self, token: Duration) {
        self.script.0.lock().unwrap().speaking = token;
    }

    /// Has each token of a prompt take so long.
    pub(crate) fn read_slowly(&self, token: Duration) {
        self.script.0.lock().unwrap().reading = token;
    }
}
