//! Calls in a form that only a grammar describes.

use crate::support::{Case, call, case, content};

pub(super) fn cases() -> Vec<Case> {
    let told = call("lookup", r#"{"word": "ebb"}"#);
    let plain = |text: &str| case("own", text, [content(text)]);
    vec![
        case("own", r#"<do>lookup with {"word": "ebb"}!</do>"#, [told.clone()]),
        case("own", "So: <do>\nplease lookup with {\"word\": \"ebb\"}\n</do>", [content("So:"), told.clone()]),
        case(
            "own",
            r#"<do>lookup with {"word": "ebb"}</do><do>write_note with {}!</do> Done."#,
            [told, call("write_note", "{}"), content("Done.")],
        ),
        // The closing mark within a text.
        case("own", r#"<do>lookup with {"word": "</do>"}!</do>"#, [call("lookup", r#"{"word": "</do>"}"#)]),
        // Cut off before its mark, it lacks nothing.
        case("own", r#"<do>lookup with {"word": "é"}!"#, [call("lookup", r#"{"word": "é"}"#)]),
        plain("<do>nothing of the kind</do> and more"),
        plain("<do>lookup with {\"word\": </do> and more"),
        // Cut off before it was one, as in every form.
        case("own", "So: <do>lookup with {", [content("So:")]),
        plain("a <d and </do>"),
    ]
}
