//! From the tokens of a sequence to the pieces of its answer: characters first, then the parts of the model's turn, then
//! the client's stop texts, which end nothing but the answer's text.

use bantam_text::{Piece, Splitter, StopMatcher, StreamDecoder, Tokenizer, TokenizerError};

/// What reads one sequence.
#[derive(Debug)]
pub(crate) struct Speech {
    pub(crate) decoder: StreamDecoder,
    /// Texts that end a turn of this model however they are put together of tokens.
    pub(crate) ends: StopMatcher,
    /// None: all is text.
    pub(crate) splitter: Option<Splitter>,
    /// The client's stop texts.
    pub(crate) stops: StopMatcher,
}

/// What a token, or the end, brought.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    pub(crate) pieces: Vec<Piece>,
    /// If the answer ends here.
    pub(crate) ending: Option<Ending>,
}

/// How a text ends an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It ends turns of this model.
    Turn,
    /// It is one of the client's.
    Stop(String),
}

impl Speech {
    /// Takes all for text.
    ///
    /// # Errors
    /// Never in practice: there is nothing to look for.
    pub(crate) fn plain(tokenizer: &Tokenizer) -> Result<Self, TokenizerError> {
        let nothing = StopMatcher::new([])?;
        Ok(Speech { decoder: tokenizer.stream(true), ends: nothing.clone(), splitter: None, stops: nothing })
    }

    /// Takes the next token.
    pub(crate) fn push(&mut self, token: u32) -> Heard {
        let text = self.decoder.push(token);
        let found = self.ends.push(&text);
        let mut pieces = self.split(&found.text);
        if found.hit.is_none() {
            return self.watch(pieces);
        }
        pieces.extend(self.splitter.iter_mut().flat_map(Splitter::finish));
        let heard = self.watch(pieces);
        Heard { ending: heard.ending.or(Some(Ending::Turn)), ..heard }
    }

    /// Ends the sequence: what was held back comes out. A character that the end cut in two is left out, since it would
    /// show as a replacement character.
    pub(crate) fn finish(&mut self) -> Heard {
        let rest = self.decoder.finish();
        let found = self.ends.push(rest.trim_end_matches(char::REPLACEMENT_CHARACTER));
        let text = if found.hit.is_some() { found.text } else { found.text + &self.ends.finish() };
        let mut pieces = self.split(&text);
        pieces.extend(self.splitter.iter_mut().flat_map(Splitter::finish));
        let mut heard = self.watch(pieces);
        if heard.ending.is_none() {
            heard.add_text(self.stops.finish());
            heard.ending = found.hit.map(|_| Ending::Turn);
        }
        heard
    }

    /// Whether the model is thinking.
    pub(crate) fn is_reasoning(&self) -> bool {
        self.splitter.as_ref().is_some_and(Splitter::is_reasoning)
    }

    fn split(&mut self, text: &str) -> Vec<Piece> {
        match &mut self.splitter {
            Some(splitter) => splitter.push(text),
            None if text.is_empty() => Vec::new(),
            None => vec![Piece::Content(text.to_owned())],
        }
    }

    /// Looks for stop texts in what is the answer's text. Nothing follows one that is found.
    fn watch(&mut self, pieces: Vec<Piece>) -> Heard {
        let mut heard = Heard::default();
        for piece in pieces {
            let Piece::Content(text) = piece else {
                heard.add_text(self.stops.flush());
                heard.pieces.push(piece);
                continue;
            };
            let found = self.stops.push(&text);
            heard.add_text(found.text);
            if let Some(stop) = found.hit {
                heard.ending = Some(Ending::Stop(stop));
                break;
            }
        }
        heard
    }
}

impl Heard {
    fn add_text(&mut self, text: String) {
        if !text.is_empty() {
            self.pieces.push(Piece::Content(text));
        }
    }
}
