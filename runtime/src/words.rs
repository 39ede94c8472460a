//! Text from files and clients, made fit to be shown: in errors, in logs, on terminals.

/// Longest quoted value that is shown whole, in characters.
const LONGEST_VALUE: usize = 100;
/// Longest run without a space that is shown whole: paths may be long.
const LONGEST_WORD: usize = 1000;
/// Longest text that is shown whole; of a longer one so much of the beginning and a quarter of that of the end.
const LONGEST_TEXT: usize = 4000;

/// The text with control characters spelled out, and those that turn the direction of what follows them.
pub fn printable(text: &str) -> String {
    text.chars().flat_map(|c| if misleads(c) { c.escape_unicode().collect() } else { plain(c) }).collect()
}

fn plain(c: char) -> Vec<char> {
    if c.is_control() { c.escape_default().collect() } else { vec![c] }
}

/// Marks of direction and ends of line that are no control characters, and what cannot be seen at all.
fn misleads(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// An error's text with the values that it quotes cut to about 100 characters: what comes out of a file or a request may be
/// megabytes long, while the words around it say what is wrong and what to do.
pub fn brief(text: &str) -> String {
    if text.len() <= LONGEST_VALUE {
        return text.to_owned();
    }
    let mut told = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(['`', '"']) {
        let (before, quoted) = rest.split_at(start);
        let mark = &quoted[..1];
        let Some(length) = quoted[1..].find(mark) else { break };
        told.push_str(&short_words(before));
        let (value, behind) = quoted[1..].split_at(length);
        told.extend([mark, &cut(value, LONGEST_VALUE), mark]);
        rest = &behind[1..];
    }
    told.push_str(&short_words(rest));
    let length = told.chars().count();
    if length <= LONGEST_TEXT {
        return told;
    }
    let end = told.chars().skip((length - LONGEST_TEXT / 4).max(LONGEST_TEXT));
    told.chars().take(LONGEST_TEXT).chain(['…']).chain(end).collect()
}

fn short_words(text: &str) -> String {
    text.split(' ').map(|word| cut(word, LONGEST_WORD)).collect::<Vec<_>>().join(" ")
}

/// The first characters of a text, and a sign where there are more.
fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// Bytes as people read them.
pub fn size(bytes: u64) -> String {
    match bytes {
        0..=0xF_FFFF => format!("{:.1} KiB", bytes as f64 / 1024.0),
        0x10_0000..=0x3FFF_FFFF => format!("{:.1} MiB", bytes as f64 / (1u64 << 20) as f64),
        _ => format!("{:.2} GiB", bytes as f64 / (1u64 << 30) as f64),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nothing_moves_the_cursor_or_turns_the_line() {
        assert_eq!(printable("a\u{1b}[2J\u{7}\u{9b}é\n"), "a\\u{1b}[2J\\u{7}\\u{9b}é\\n");
        assert_eq!(printable("\u{202e}gnp.exe\u{2066}"), "\\u{202e}gnp.exe\\u{2066}");
    }

    #[test]
    fn values_are_cut_and_the_words_around_them_are_not() {
        let long = "é".repeat(3_000_000);
        for value in [format!("`{long}`"), format!("\"{long}\""), long.clone(), "a ".repeat(1_000_000)] {
            let told = brief(&format!("model.gguf: key `general.architecture`: {value} is unknown; convert it anew"));
            assert!(told.starts_with("model.gguf: key `general.architecture`: "), "{told}");
            assert!(told.ends_with(" is unknown; convert it anew") && told.contains('…'), "{told}");
            assert!(told.chars().count() < 5100);
        }
        let quoted = brief(&format!("`{long}` is unknown"));
        assert_eq!(quoted, format!("`{}…` is unknown", "é".repeat(100)));
    }

    proptest! {
        #[test]
        fn what_is_short_stays_as_it_is(text in ".{0,40}( \\PC{0,28}){0,2}") {
            prop_assert_eq!(brief(&text), text);
        }
    }
}
