//! Calls in a form that a grammar of the family describes.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use llguidance::api::{GrammarWithLexer, StopReason, TopLevelGrammar};
use llguidance::{Matcher, ParserFactory};
use toktrie::ApproximateTokEnv;

use super::scan::{Input, Read};
use super::sink::Sink;
use super::syntax::CallReader;
use super::tools::Tools;

/// Longest grammar, in bytes.
const LONGEST_GRAMMAR: usize = 64 << 10;
/// How deep its brackets may nest: what reads them goes down by calls.
const DEEPEST: usize = 100;
/// What reads a grammar needs for the deepest of them.
const COMPILER_STACK: usize = 64 << 20;
/// Longest call that is looked at, in bytes.
const LONGEST_CALL: usize = 1 << 20;

/// Words of the compiler's message that are told.
const SHOWN_WORDS: usize = 60;

/// What the holes of a grammar stand for where a call is read: any name, and any JSON object.
const HOLES: &str = "name[capture]: /[^\\s\"'(){}\\[\\]<>,=]+/\narguments[capture]: %json {\"type\": \"object\"}\n";

/// A compiled grammar of calls.
#[derive(Clone)]
pub(super) struct CallGrammar(Arc<Mutex<Matcher>>);

impl CallGrammar {
    /// Compiles a grammar with holes.
    ///
    /// # Errors
    /// What the compiler refuses, or a grammar that is too long or too deep.
    pub(super) fn new(grammar: &str) -> Result<Self, String> {
        if grammar.len() > LONGEST_GRAMMAR {
            return Err(format!("it has {} bytes, expected at most {LONGEST_GRAMMAR}", grammar.len()));
        }
        if depth(grammar) > DEEPEST {
            return Err(format!("it nests its brackets deeper than {DEEPEST}"));
        }
        let text = format!("{grammar}\n{HOLES}");
        let matcher = std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("grammar".into()).stack_size(COMPILER_STACK);
            let compile = move || compile(text);
            let running = thread.spawn_scoped(scope, compile).map_err(|e| e.to_string())?;
            running.join().map_err(|_| "the grammar compiler failed".to_owned())?
        })?;
        Ok(Self(Arc::new(Mutex::new(matcher))))
    }

    /// What a text is behind which the closing mark stands, or nothing any more.
    fn read(&self, text: &str, close: &str) -> Verdict {
        let mut run = self.0.lock().unwrap_or_else(PoisonError::into_inner).deep_clone();
        let mut takes = |text: &str| {
            let bytes: Vec<u32> = text.bytes().map(u32::from).collect();
            run.try_consume_tokens(&bytes).is_ok_and(|taken| taken == bytes.len())
        };
        if !takes(text.trim_ascii_start()) {
            // White space at the end is free, but may be part of a text among the arguments too.
            let call = text.trim_ascii();
            return if call.len() < text.trim_ascii_start().len() { self.read(call, close) } else { Verdict::No };
        }
        let is_over = run.stop_reason() == StopReason::NoExtension;
        if is_over || run.is_accepting().unwrap_or(false) {
            // A hole at the end is closed by what follows it.
            if let (false, Ok(env)) = (is_over, run.tok_env()) {
                run.consume_token(env.tok_trie().eos_token()).ok();
            }
            let part = |name: &str| String::from_utf8(run.get_capture(name)?.to_vec()).ok();
            return part("name").zip(part("arguments")).map_or(Verdict::No, |(name, json)| Verdict::Call(name, json));
        }
        let bytes: Vec<u32> = close.bytes().map(u32::from).collect();
        match run.try_consume_tokens(&bytes).is_ok_and(|taken| taken == bytes.len()) {
            true => Verdict::Maybe,
            false => Verdict::No,
        }
    }
}

/// What a text is.
enum Verdict {
    /// A call of this name with these arguments.
    Call(String, String),
    /// The beginning of one, in which the mark is text.
    Maybe,
    /// No call.
    No,
}

fn compile(text: String) -> Result<Matcher, String> {
    static BYTES: OnceLock<Result<ParserFactory, String>> = OnceLock::new();
    let factory = BYTES.get_or_init(|| {
        let bytes = ApproximateTokEnv::single_byte_env();
        ParserFactory::new_simple(&bytes).map_err(|error| error.to_string())
    });
    let grammar = TopLevelGrammar { grammars: vec![GrammarWithLexer::from_lark(text)], max_tokens: None };
    let matcher = Matcher::new(factory.as_ref().map_err(Clone::clone)?.create_parser(grammar));
    match matcher.get_error() {
        Some(error) => Err(error.split_whitespace().take(SHOWN_WORDS).collect::<Vec<_>>().join(" ")),
        None => Ok(matcher),
    }
}

/// Never less than how deep the brackets of a text nest, whatever of them is quoted.
fn depth(text: &str) -> usize {
    let step = |(open, deepest): (usize, usize), byte: u8| match byte {
        b'(' | b'[' | b'{' => (open + 1, deepest.max(open + 1)),
        b')' | b']' | b'}' => (open.saturating_sub(1), deepest),
        _ => (open, deepest),
    };
    text.bytes().fold((0, 0), step).1
}

impl fmt::Debug for CallGrammar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CallGrammar")
    }
}

/// Reads one call, which is told when its closing mark is there: before it nobody knows what is a name.
#[derive(Debug)]
pub(super) struct LarkReader {
    grammar: CallGrammar,
    close: String,
    tools: Tools,
    body: String,
}

impl LarkReader {
    pub(super) fn new(grammar: CallGrammar, close: Option<String>, tools: Tools) -> Self {
        Self { grammar, close: close.unwrap_or_default(), tools, body: String::new() }
    }

    /// Tells of the call, if what was read is one.
    fn tell(&self, sink: &mut Sink) -> Read {
        match self.grammar.read(&self.body, &self.close) {
            Verdict::Call(name, arguments) if self.tools.allow(&name) => {
                sink.call(&name);
                sink.arguments(&arguments);
                sink.end();
                Read::Done
            }
            Verdict::Maybe => Read::More,
            Verdict::Call(..) | Verdict::No => Read::NotACall,
        }
    }
}

impl CallReader for LarkReader {
    fn read(&mut self, input: &mut Input<'_>, sink: &mut Sink) -> Read {
        loop {
            if self.body.len() > LONGEST_CALL {
                return Read::NotACall;
            }
            let text = input.text();
            let Some(at) = text.find(&self.close) else {
                // The closing mark may have begun.
                let ends = (0..text.len()).filter_map(|at| text.get(at..)).find(|end| self.close.starts_with(end));
                self.body.push_str(input.advance(text.len() - ends.map_or(0, str::len)));
                return Read::More;
            };
            self.body.push_str(input.advance(at));
            match self.tell(sink) {
                // The mark stands in a text among the arguments.
                Read::More => self.body.push_str(input.advance(self.close.len())),
                told => return told,
            }
        }
    }

    fn finish(&mut self, rest: &str, sink: &mut Sink) {
        self.body.push_str(rest);
        self.tell(sink);
    }
}
