//! The marks of calls: what they are made of, and by what a call is known to begin.

use bantam_family_api::CallSyntax;

use crate::Vocabulary;
use crate::lark::{Piece, pieces};

/// The tags of a text: cut at new lines and between what closes one and opens the next.
pub(super) fn tags(text: &str) -> Vec<&str> {
    let mut tags = Vec::new();
    for line in text.split('\n') {
        let mut rest = line;
        while let Some(end) = rest.find("><").map(|at| at + 1) {
            let (tag, behind) = rest.split_at(end);
            tags.push(tag);
            rest = behind;
        }
        tags.push(rest);
    }
    tags.retain(|tag| !tag.is_empty());
    tags
}

/// What begins a call wherever it stands.
fn opening(syntax: &CallSyntax) -> &str {
    match syntax {
        CallSyntax::Json(calls) => calls.block.as_ref().map_or(&calls.open, |[open, _]| open),
        CallSyntax::Tagged(calls) => calls.block.as_ref().map_or(&calls.open, |[open, _]| open),
        CallSyntax::Named(calls) => calls.block.as_ref().map_or(&calls.open, |[open, _]| open),
        CallSyntax::Python { open, .. } | CallSyntax::Braced { open, .. } => open,
        CallSyntax::Lark(calls) => &calls.open,
    }
}

/// Whether a call is known by the answer beginning with it.
pub(crate) fn opens_the_turn(syntax: &CallSyntax) -> bool {
    opening(syntax).is_empty()
}

/// Whether nothing may follow a call, as only the end of the turn closes it.
pub(crate) fn ends_the_turn(syntax: &CallSyntax) -> bool {
    matches!(syntax, CallSyntax::Json(calls) if calls.block.is_none() && calls.close.is_empty())
}

/// Texts behind which there is a call of this syntax, or nothing that means anything: the first tag; where that begins with
/// a token of its own, the token.
pub(crate) fn triggers(vocabulary: &Vocabulary, syntax: &CallSyntax) -> Vec<String> {
    if let (CallSyntax::Json(calls), true) = (syntax, opens_the_turn(syntax)) {
        return ["{", "{ ", "{\n  ", "{\n    "].iter().map(|begun| format!("{begun}\"{}\"", calls.name)).collect();
    }
    let first = tags(opening(syntax)).first().copied().unwrap_or_default();
    let token = match pieces(vocabulary, first).first() {
        Some(Piece::Token(id)) => String::from_utf8(vocabulary.bytes(*id).to_vec()).ok(),
        _ => None,
    };
    vec![token.unwrap_or_else(|| first.to_owned())]
}

#[cfg(test)]
mod tests {
    use super::tags;

    #[test]
    fn texts_are_cut_into_tags() {
        assert_eq!(tags("<tool_call>\n<function="), ["<tool_call>", "<function="]);
        assert_eq!(tags("\n\n<calls>\n"), ["<calls>"]);
        assert_eq!(tags("</key><value>"), ["</key>", "<value>"]);
        assert_eq!(tags("<invoke name=\""), ["<invoke name=\""]);
        assert_eq!(tags("\n"), [""; 0]);
    }
}
