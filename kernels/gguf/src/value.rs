//! Metadata values.

use std::fmt;

use crate::cursor::Cursor;
use crate::error::{Fault, quote};

/// A string of a GGUF file. Text by convention, yet files exist whose strings are not UTF-8.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct GgufString(Box<[u8]>);

impl GgufString {
    /// The bytes as stored.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The text; `None` where the bytes are not UTF-8.
    pub fn to_str(&self) -> Option<&str> {
        str::from_utf8(&self.0).ok()
    }
}

impl<T: AsRef<[u8]>> From<T> for GgufString {
    fn from(bytes: T) -> Self {
        Self(bytes.as_ref().into())
    }
}

impl fmt::Debug for GgufString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

/// An array of strings in two allocations, however many there are (vocabularies have hundreds of thousands).
#[derive(Clone, Default, PartialEq, Eq)]
pub struct StringArray {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl StringArray {
    /// Number of strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no string.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The bytes of string `index`; `None` past the end.
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let end = *self.ends.get(index)?;
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        self.bytes.get(start..end)
    }

    /// The text of string `index`; `None` past the end or where it is not UTF-8.
    pub fn get_str(&self, index: usize) -> Option<&str> {
        str::from_utf8(self.get(index)?).ok()
    }

    /// The bytes of every string, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        (0..self.len()).map(|index| self.get(index).unwrap_or_default())
    }

    /// Reads `count` strings; each needs at least its length word of the file.
    fn decode(count: u64, from: &mut Cursor<'_>) -> Result<Self, Fault> {
        if count > from.left() as u64 / 8 {
            let left = format!("{} bytes to the end of the file", from.left());
            return Err(Fault::new("array", format!("{count} strings"), left));
        }
        let mut array = Self::default();
        for _ in 0..count {
            array.push(from.string("array")?);
        }
        Ok(array)
    }

    /// Appends a string.
    pub fn push(&mut self, string: &[u8]) {
        self.bytes.extend_from_slice(string);
        self.ends.push(self.bytes.len());
    }
}

impl<T: AsRef<[u8]>> FromIterator<T> for StringArray {
    fn from_iter<I: IntoIterator<Item = T>>(strings: I) -> Self {
        let mut array = Self::default();
        strings.into_iter().for_each(|string| array.push(string.as_ref()));
        array
    }
}

impl fmt::Debug for StringArray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(String::from_utf8_lossy)).finish()
    }
}

/// Declares the value types of fixed size, once for values and once for arrays: number in files, name, conversion from
/// and to little-endian bytes.
macro_rules! values {
    ($($variant:ident($rust:ty) = $id:literal, $name:literal, $decode:expr, $encode:expr;)*) => {
        /// A metadata value.
        #[derive(Clone, Debug, PartialEq)]
        #[allow(missing_docs, reason = "each variant is the type of that name")]
        pub enum Value {
            $($variant($rust),)*
            String(GgufString),
            Array(Array),
        }

        /// An array value. GGUF has no arrays of arrays.
        #[derive(Clone, Debug, PartialEq)]
        #[allow(missing_docs, reason = "each variant is the type of that name")]
        pub enum Array {
            $($variant(Vec<$rust>),)*
            String(StringArray),
        }

        impl Value {
            /// The type's number in files.
            pub(crate) fn type_id(&self) -> u32 {
                match self {
                    $(Value::$variant(_) => $id,)*
                    Value::String(_) => STRING_ID,
                    Value::Array(_) => ARRAY_ID,
                }
            }

            /// Reads a value of type `id`.
            pub(crate) fn decode(id: u32, from: &mut Cursor<'_>) -> Result<Self, Fault> {
                match id {
                    $($id => from.array("value").map(|bytes| Value::$variant($decode(bytes))),)*
                    STRING_ID => from.string("value").map(|bytes| Value::String(bytes.into())),
                    ARRAY_ID => Array::decode(from).map(Value::Array),
                    _ => Err(Fault::new("value type", "0 to 12", id.to_string())),
                }
            }

            /// Appends the value as it stands in a file, after the type word.
            pub(crate) fn encode(&self, out: &mut Vec<u8>) {
                match self {
                    $(Value::$variant(value) => out.extend_from_slice(&$encode(*value)),)*
                    Value::String(string) => encode_string(string.as_bytes(), out),
                    Value::Array(array) => array.encode(out),
                }
            }
        }

        impl Array {
            /// The element type's number in files.
            pub(crate) fn element_type_id(&self) -> u32 {
                match self {
                    $(Array::$variant(_) => $id,)*
                    Array::String(_) => STRING_ID,
                }
            }

            /// Number of elements.
            pub fn len(&self) -> usize {
                match self {
                    $(Array::$variant(elements) => elements.len(),)*
                    Array::String(elements) => elements.len(),
                }
            }

            /// The element type's name, such as `i32`.
            pub fn element_type_name(&self) -> &'static str {
                match self {
                    $(Array::$variant(_) => $name,)*
                    Array::String(_) => "string",
                }
            }

            /// Reads element type, count and elements. Room is made for no more elements than the file can hold.
            fn decode(from: &mut Cursor<'_>) -> Result<Self, Fault> {
                let id = from.u32("element type")?;
                let count = from.u64("array length")?;
                Ok(match id {
                    $($id => {
                        let items = from.take_items(count, "array")?.iter();
                        Array::$variant(items.map(|&bytes| $decode(bytes)).collect())
                    })*
                    STRING_ID => Array::String(StringArray::decode(count, from)?),
                    ARRAY_ID => return Err(Fault::new("element type", "no array of arrays", id.to_string())),
                    _ => return Err(Fault::new("element type", "0 to 12", id.to_string())),
                })
            }

            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.element_type_id().to_le_bytes());
                out.extend_from_slice(&(self.len() as u64).to_le_bytes());
                match self {
                    $(Array::$variant(elements) => elements.iter().for_each(|&value| {
                        out.extend_from_slice(&$encode(value));
                    }),)*
                    Array::String(strings) => strings.iter().for_each(|string| encode_string(string, out)),
                }
            }
        }

        impl fmt::Display for Value {
            /// Type and value, such as `u32 32`; long strings are cut, of arrays only type and length are shown.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Value::$variant(value) => write!(f, "{} {value}", $name),)*
                    Value::String(string) => write!(f, "string {}", quote(string.as_bytes())),
                    Value::Array(array) => write!(f, "array of {} {}", array.len(), array.element_type_name()),
                }
            }
        }

        $(
            impl From<$rust> for Value {
                fn from(value: $rust) -> Self {
                    Value::$variant(value)
                }
            }

            impl From<Vec<$rust>> for Value {
                fn from(elements: Vec<$rust>) -> Self {
                    Value::Array(Array::$variant(elements))
                }
            }
        )*
    };
}

/// The number of the string type in files.
pub(crate) const STRING_ID: u32 = 8;
/// The number of the array type in files.
pub(crate) const ARRAY_ID: u32 = 9;

values! {
    U8(u8) = 0, "u8", u8::from_le_bytes, u8::to_le_bytes;
    I8(i8) = 1, "i8", i8::from_le_bytes, i8::to_le_bytes;
    U16(u16) = 2, "u16", u16::from_le_bytes, u16::to_le_bytes;
    I16(i16) = 3, "i16", i16::from_le_bytes, i16::to_le_bytes;
    U32(u32) = 4, "u32", u32::from_le_bytes, u32::to_le_bytes;
    I32(i32) = 5, "i32", i32::from_le_bytes, i32::to_le_bytes;
    F32(f32) = 6, "f32", f32::from_le_bytes, f32::to_le_bytes;
    Bool(bool) = 7, "bool", |[byte]: [u8; 1]| byte != 0, |value: bool| [u8::from(value)];
    U64(u64) = 10, "u64", u64::from_le_bytes, u64::to_le_bytes;
    I64(i64) = 11, "i64", i64::from_le_bytes, i64::to_le_bytes;
    F64(f64) = 12, "f64", f64::from_le_bytes, f64::to_le_bytes;
}

impl Array {
    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl From<&str> for Value {
    fn from(string: &str) -> Self {
        Value::String(string.into())
    }
}

impl From<StringArray> for Value {
    fn from(strings: StringArray) -> Self {
        Value::Array(Array::String(strings))
    }
}

/// Appends a length word and the bytes.
pub(crate) fn encode_string(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
    out.extend_from_slice(bytes);
}
