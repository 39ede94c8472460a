//! Reading values without serde's second form of a struct: an array of its fields in their order. Whoever writes JSON names
//! fields; an array in an object's place is a mistake, and an empty one would be taken for an object with nothing in it.

use serde::{
    Deserializer,
    de::{
        DeserializeSeed, EnumAccess, Error as _, IntoDeserializer as _, MapAccess, SeqAccess, Unexpected,
        VariantAccess, Visitor,
    },
    forward_to_deserialize_any,
};
use serde_json::{Error, Map, Value};

/// A value of which structs are read as objects only.
#[derive(Clone, Copy)]
pub(super) struct Strict<'de>(pub(super) &'de Value);

impl<'de> Deserializer<'de> for Strict<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Array(entries) => {
                let mut rest = Entries(entries.iter());
                let value = visitor.visit_seq(&mut rest)?;
                match rest.0.len() {
                    0 => Ok(value),
                    _ => Err(Error::invalid_length(entries.len(), &"fewer entries")),
                }
            }
            Value::Object(keys) => visitor.visit_map(Keys { rest: keys.iter(), value: None }),
            scalar => scalar.deserialize_any(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.0.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.0 {
            Value::Array(_) => Err(Error::invalid_type(Unexpected::Seq, &visitor)),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.0 {
            Value::Object(keys) if keys.len() == 1 => visitor.visit_enum(Choice(keys)),
            other => other.deserialize_enum(name, variants, visitor),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map identifier ignored_any
    }
}

struct Entries<'de>(std::slice::Iter<'de, Value>);

impl<'de> SeqAccess<'de> for Entries<'de> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        self.0.next().map(|value| seed.deserialize(Strict(value))).transpose()
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.0.len())
    }
}

struct Keys<'de> {
    rest: serde_json::map::Iter<'de>,
    value: Option<&'de Value>,
}

impl<'de> MapAccess<'de> for Keys<'de> {
    type Error = Error;

    fn next_key_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        let Some((key, value)) = self.rest.next() else { return Ok(None) };
        self.value = Some(value);
        seed.deserialize(key.as_str().into_deserializer()).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Error> {
        let value = self.value.take().ok_or_else(|| Error::custom("a value without its key"))?;
        seed.deserialize(Strict(value))
    }
}

/// An object of one key, which names a choice.
struct Choice<'de>(&'de Map<String, Value>);

impl<'de> EnumAccess<'de> for Choice<'de> {
    type Error = Error;
    type Variant = Attributes<'de>;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, Attributes<'de>), Error> {
        let (key, value) = self.0.iter().next().ok_or_else(|| Error::custom("an object without a key"))?;
        Ok((seed.deserialize(key.as_str().into_deserializer())?, Attributes(value)))
    }
}

/// What belongs to a choice.
struct Attributes<'de>(&'de Value);

impl<'de> VariantAccess<'de> for Attributes<'de> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        serde::Deserialize::deserialize(Strict(self.0))
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(Strict(self.0))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Array(_) => Strict(self.0).deserialize_any(visitor),
            other => Err(Error::invalid_type(unexpected(other), &"a list of attributes")),
        }
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Object(_) => Strict(self.0).deserialize_any(visitor),
            other => Err(Error::invalid_type(unexpected(other), &visitor)),
        }
    }
}

fn unexpected(value: &Value) -> Unexpected<'_> {
    match value {
        Value::Null => Unexpected::Unit,
        Value::Bool(value) => Unexpected::Bool(*value),
        Value::Number(number) => number.as_f64().map_or(Unexpected::Other("number"), Unexpected::Float),
        Value::String(text) => Unexpected::Str(text),
        Value::Array(_) => Unexpected::Seq,
        Value::Object(_) => Unexpected::Map,
    }
}
