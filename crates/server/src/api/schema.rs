//! What the types alone do not say.

use utoipa::openapi::schema::{Object, ObjectBuilder, SchemaType, Type};

/// Variables of an environment: whatever a program can be given.
pub(crate) fn variables() -> Object {
    let text = |pattern| ObjectBuilder::new().schema_type(Type::String).pattern(Some(pattern));
    ObjectBuilder::new()
        .schema_type(SchemaType::from_iter([Type::Object, Type::Null]))
        .description(Some("Variables for tools, by name."))
        .property_names(Some(text("^[A-Za-z_][A-Za-z0-9_]*$")))
        .additional_properties(Some(text(r"^[^\u0000]*$")))
        .build()
}

/// Has types read from objects and from nothing else, whose `type` is a word. What serde derives for
/// them would take more: a list for the fields in their order, a number for the word. It is derived with
/// `#[serde(remote = "Self")]`, and called here.
macro_rules! only_objects {
    ($($name:ident),*) => {$(
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D>(deserializer: D) -> Result<Self, D::Error>
            where
                D: serde::Deserializer<'de>,
            {
                use serde::de::Error as _;
                let fields = serde_json::Map::<String, serde_json::Value>::deserialize(deserializer)?;
                if fields.get("type").is_some_and(|kind| !kind.is_string()) {
                    return Err(D::Error::custom(".type must be a text"));
                }
                let fields = serde_json::Value::Object(fields);
                <$name>::deserialize(fields).map_err(D::Error::custom)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                <$name>::serialize(self, serializer)
            }
        }
    )*};
}

pub(super) use only_objects;
