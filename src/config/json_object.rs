//! A setting whose value is a JSON object.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::{Map, Value};

/// A JSON object: a text in a flag or a variable, and a text or a table in the file.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct JsonObject(pub Map<String, Value>);

impl JsonObject {
    /// Writes the object over `fields`. Objects in both are merged, and all other values replaced.
    pub fn merge_into(&self, fields: &mut Map<String, Value>) {
        merge(fields, &self.0);
    }
}

fn merge(fields: &mut Map<String, Value>, changes: &Map<String, Value>) {
    for (name, change) in changes {
        match (fields.get_mut(name), change) {
            (Some(Value::Object(inner)), Value::Object(change)) => merge(inner, change),
            _ => {
                fields.insert(name.clone(), change.clone());
            }
        }
    }
}

impl Serialize for JsonObject {
    /// Writes the object as text, as the flag takes it.
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&serde_json::to_string(&self.0).unwrap_or_default())
    }
}

impl<'de> Deserialize<'de> for JsonObject {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a JSON object, as text or as a table")]
        enum Written {
            Text(String),
            Object(Map<String, Value>),
        }
        match Written::deserialize(from)? {
            Written::Text(text) => serde_json::from_str(&text).map(Self).map_err(de::Error::custom),
            Written::Object(object) => Ok(Self(object)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_are_merged_and_other_values_replaced() {
        let text = json!(r#"{"a": {"b": 1}, "c": [2]}"#);
        let changes: JsonObject = serde_json::from_value(text).unwrap();
        let mut fields = json!({"a": {"b": 0, "d": 3}, "c": [0, 1], "e": 4});
        changes.merge_into(fields.as_object_mut().unwrap());
        assert_eq!(fields, json!({"a": {"b": 1, "d": 3}, "c": [2], "e": 4}));
        let written = serde_json::to_value(&changes).unwrap();
        assert_eq!(written, r#"{"a":{"b":1},"c":[2]}"#);
        assert!(serde_json::from_value::<JsonObject>(json!("[1]")).is_err());
    }
}
