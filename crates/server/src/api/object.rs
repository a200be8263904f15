//! Reading objects as objects. What serde derives takes a list for the fields of a struct too, one by
//! one; on the wire that is a mistake, and is told.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// Something that is written as an object, and in no other way.
pub(crate) struct Object<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(OnlyObjects(PhantomData)).map(Self)
    }
}

struct OnlyObjects<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for OnlyObjects<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map))
    }
}

/// One, or none.
pub(super) fn one<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Ok(Option::<Object<T>>::deserialize(deserializer)?.map(|object| object.0))
}

/// A list of them.
pub(super) fn list<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let objects = Vec::<Object<T>>::deserialize(deserializer)?;
    Ok(objects.into_iter().map(|object| object.0).collect())
}

/// A list of them, or none.
pub(super) fn maybe_list<'de, D, T>(deserializer: D) -> Result<Option<Vec<T>>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let objects = Option::<Vec<Object<T>>>::deserialize(deserializer)?;
    Ok(objects.map(|objects| objects.into_iter().map(|object| object.0).collect()))
}

/// Some by their names, or none.
pub(super) fn by_name<'de, D, T>(deserializer: D) -> Result<Option<BTreeMap<String, T>>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let objects = Option::<BTreeMap<String, Object<T>>>::deserialize(deserializer)?;
    Ok(objects.map(|objects| objects.into_iter().map(|(name, object)| (name, object.0)).collect()))
}

/// The `type` of an object: one of those that are known. The error is about a field of the object, and begins with a point.
pub(super) fn kind<'k, E: Error>(
    fields: &Map<String, Value>,
    known: &[&'k str],
) -> Result<&'k str, E> {
    let list = known.join(", ");
    let why = match fields.get("type") {
        None => format!(".type is missing; known are {list}"),
        Some(Value::String(kind)) => match known.iter().find(|known| *known == kind) {
            Some(kind) => return Ok(kind),
            None => format!(".type \"{kind:.40}\" is not known; known are {list}"),
        },
        Some(_) => format!(".type must be a text; known are {list}"),
    };
    Err(E::custom(why))
}

/// A field of an object.
pub(super) fn field<T: DeserializeOwned, E: Error>(
    fields: &mut Map<String, Value>,
    name: &str,
) -> Result<T, E> {
    let value = fields.remove(name).unwrap_or_default();
    if value.is_null() {
        return Err(E::custom(format!(".{name} is missing")));
    }
    T::deserialize(value).map_err(|error| E::custom(format!(".{name}: {error}")))
}
