//! What is wrong with JSON, in words that whoever wrote it knows. The library that reads it speaks of types of this program.

/// A refusal in such words.
pub(super) fn plain(why: &str) -> String {
    for (theirs, ours) in [
        ("missing field ", "missing key "),
        ("duplicate field ", "twice the key "),
        ("unknown field ", "unknown key "),
        ("unknown variant ", "unknown word "),
    ] {
        if let Some(rest) = why.strip_prefix(theirs) {
            let rest =
                rest.replace("there are no fields", "expected none").replace("there are no variants", "expected none");
            return format!("{ours}{rest}");
        }
    }
    let found = ["invalid type: ", "invalid value: ", "invalid length "].iter().find_map(|kind| {
        let (found, expected) = why.strip_prefix(kind)?.rsplit_once(", expected ")?;
        let found = if kind.ends_with("length ") { format!("{found} entries") } else { found_in_words(found) };
        Some(format!("expected {}, found {found}", expected_in_words(expected)))
    });
    match found {
        Some(found) => found,
        None if why.starts_with("data did not match any variant") => "expected another kind of value".into(),
        None => why.into(),
    }
}

fn expected_in_words(expected: &str) -> String {
    let known = match expected {
        "usize" | "u64" => "an integer of 0 or more",
        "u32" => "an integer from 0 to 4294967295",
        "u16" => "an integer from 0 to 65535",
        "u8" => "an integer from 0 to 255",
        "isize" | "i64" | "i32" | "i16" | "i8" => "an integer",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a sequence" => "an array",
        "a map" => "an object",
        "string or map" => "a word, or an object of one key",
        "variant identifier" => "a word",
        "unit" | "unit value" => "null",
        "option" => "a value or null",
        _ if expected.starts_with("unit variant") => "the word alone, without attributes",
        _ if expected.starts_with("struct") => "an object",
        _ if expected.starts_with("newtype") => "a value",
        _ if expected.starts_with("tuple of") || expected.starts_with("an array of") => {
            let count: String = expected.chars().filter(char::is_ascii_digit).collect();
            return format!("an array of {count}");
        }
        _ => expected,
    };
    known.into()
}

fn found_in_words(found: &str) -> String {
    let known = match found {
        "sequence" => "an array",
        "map" => "an object",
        "null" | "unit value" | "Option value" => "null",
        "unit variant" => "a word alone",
        "newtype variant" | "tuple variant" | "struct variant" | "enum" => "a word with attributes",
        _ => {
            let kinds = [("integer ", "the number "), ("floating point ", "the number "), ("boolean ", "")];
            let named = kinds.iter().find_map(|(theirs, ours)| Some((found.strip_prefix(theirs)?, ours)));
            return match named {
                Some((value, ours)) => format!("{ours}{}", value.trim_matches('`')),
                None => found.strip_prefix("string ").map_or_else(|| found.into(), |text| format!("the text {text}")),
            };
        }
    };
    known.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_word_of_this_programs_types_is_left() {
        for (theirs, ours) in [
            ("invalid type: string \"x\", expected usize", "expected an integer of 0 or more, found the text \"x\""),
            (
                "invalid value: integer `-1`, expected u32",
                "expected an integer from 0 to 4294967295, found the number -1",
            ),
            ("invalid type: floating point `1.5`, expected f32", "expected a number, found the number 1.5"),
            ("invalid type: sequence, expected struct Graph", "expected an object, found an array"),
            ("invalid type: map, expected a sequence", "expected an array, found an object"),
            ("invalid type: boolean `true`, expected a string", "expected a string, found true"),
            ("invalid type: null, expected string or map", "expected a word, or an object of one key, found null"),
            ("invalid length 2, expected an array of length 3", "expected an array of 3, found 2 entries"),
            ("missing field `name`", "missing key `name`"),
            ("unknown field `wish`, there are no fields", "unknown key `wish`, expected none"),
            ("unknown variant `teleport`, expected `a` or `b`", "unknown word `teleport`, expected `a` or `b`"),
            ("of the author's own", "of the author's own"),
        ] {
            assert_eq!(plain(theirs), ours);
        }
    }
}
