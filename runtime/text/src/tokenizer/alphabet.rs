//! GPT-2's byte alphabet: the 256 printable characters in which byte-level vocabularies spell bytes.

/// Bytes that stand for themselves.
fn is_printable(byte: u8) -> bool {
    matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF)
}

/// The character that spells `byte`: itself if printable, else the next free one from U+0100 on, in rising order.
pub(crate) fn spell(byte: u8) -> char {
    if is_printable(byte) {
        return char::from(byte);
    }
    let rank = (0..byte).filter(|&b| !is_printable(b)).count();
    u32::try_from(rank).ok().and_then(|rank| char::from_u32(0x100 + rank)).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// The way back from characters to bytes.
pub(crate) struct Alphabet {
    /// Index is the code point; the alphabet ends at U+0143.
    bytes: Vec<Option<u8>>,
}

impl Alphabet {
    pub(crate) fn new() -> Self {
        let mut bytes = vec![None; 0x144];
        for byte in 0..=u8::MAX {
            if let Some(slot) = bytes.get_mut(spell(byte) as usize) {
                *slot = Some(byte);
            }
        }
        Self { bytes }
    }

    /// The bytes that `text` spells, or `None` if a character is not of the alphabet: such a token is literal text.
    pub(crate) fn read(&self, text: &str) -> Option<Vec<u8>> {
        text.chars().map(|c| self.bytes.get(c as usize).copied().flatten()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_its_own_character() {
        let alphabet = Alphabet::new();
        for byte in 0..=u8::MAX {
            assert_eq!(alphabet.read(&spell(byte).to_string()), Some(vec![byte]));
        }
        assert_eq!((spell(b' '), spell(b'\n'), spell(0xAD)), ('Ġ', 'Ċ', '\u{143}'));
    }

    #[test]
    fn other_characters_are_literal() {
        assert_eq!(Alphabet::new().read("a b"), None);
        assert_eq!(Alphabet::new().read("｜"), None);
    }
}
