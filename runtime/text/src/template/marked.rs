//! Rendering such that control tokens typed by a user stay text.
//!
//! Strings of the conversation that spell a control token get the spelling enclosed in two private-use characters, which
//! travel through the template to the prompt and say there what came from the user. Templates look into strings and cut
//! them up, so the marked prompt is only believed if it is the unmarked one with marks.

use jiff::civil::DateTime;

use super::messages::{self, Marks};
use super::{ChatTemplate, RenderInput, TemplateError, engine};
use crate::tokenizer::{Segment, Specials, Tokenizer};

impl ChatTemplate {
    /// The prompt as [`render`](Self::render) gives it, in segments: where the conversation, the tools or the variables
    /// spell a control token of `tokenizer` (or begin one, at the end of a string) the segment is [`Specials::Plain`].
    ///
    /// A template that looks for such a spelling, or cuts it apart, would render something else if it were marked; then
    /// what assistants said is left unmarked, and if that does not help the whole prompt.
    ///
    /// # Errors
    /// As [`render`](Self::render).
    pub fn render_marked(
        &self,
        input: &RenderInput,
        tokenizer: &Tokenizer,
        now: DateTime,
    ) -> Result<Vec<Segment>, TemplateError> {
        let prompt = self.render(input, now)?;
        for spare_assistants in [false, true] {
            let Some((open, close)) = free_marks(&prompt) else { break };
            let marks = Marks::new(tokenizer, open, close, spare_assistants);
            let context = messages::context(input, &marks);
            if !marks.were_set() {
                return Ok(vec![Segment { text: prompt, specials: Specials::Parse }]);
            }
            let marked = self.render_context(context, engine::allowance(input), input, now);
            let segments = marked.ok().and_then(|marked| cut(&marked, open, close));
            if let Some(segments) = segments.filter(|segments| is_cut_of(&prompt, segments)) {
                return Ok(segments);
            }
        }
        tracing::debug!("the chat template reads control tokens in messages; they are not told from its own");
        Ok(vec![Segment { text: prompt, specials: Specials::Parse }])
    }
}

/// Two private-use characters that the prompt does not use.
fn free_marks(prompt: &str) -> Option<(char, char)> {
    let mut free = ('\u{E000}'..='\u{F8FF}').filter(|c| !prompt.contains(*c));
    Some((free.next()?, free.next()?))
}

/// Cuts at the marks; `None` if they do not come in pairs.
fn cut(marked: &str, open: char, close: char) -> Option<Vec<Segment>> {
    let mut segments = Vec::new();
    let mut push = |text: &str, specials| {
        if !text.is_empty() {
            segments.push(Segment { text: text.to_owned(), specials });
        }
    };
    for (index, part) in marked.split(open).enumerate() {
        let trusted = match index {
            0 => part,
            _ => {
                let (plain, trusted) = part.split_once(close)?;
                push(plain, Specials::Plain);
                trusted
            }
        };
        if trusted.contains(close) {
            return None;
        }
        push(trusted, Specials::Parse);
    }
    Some(segments)
}

fn is_cut_of(prompt: &str, segments: &[Segment]) -> bool {
    let mut rest = prompt;
    segments.iter().all(|segment| match rest.strip_prefix(segment.text.as_str()) {
        Some(behind) => {
            rest = behind;
            true
        }
        None => false,
    }) && rest.is_empty()
}
