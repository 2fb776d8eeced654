//! The adapters that a server has from its start: vLLM's `--lora-modules`.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error, SeqAccess, Visitor, value::MapAccessDeserializer},
};

/// An adapter by its name and its folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoraModule {
    /// The name that requests use as their model.
    pub name: String,
    /// The folder with the files of PEFT.
    pub path: String,
    /// The name of its base model, which must be one of this server's.
    pub base_model_name: Option<String>,
}

/// The fields of vLLM's JSON.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    name: String,
    path: String,
    #[serde(default)]
    base_model_name: Option<String>,
    /// Whether the matrices of all experts are in one tensor. Their shapes tell this here.
    #[serde(default, rename = "is_3d_lora_weight")]
    _is_3d_lora_weight: bool,
}

impl LoraModule {
    /// Reads `name=path`, or vLLM's JSON object.
    fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.starts_with('{') {
            let fields: Fields = serde_json::from_str(text)
                .map_err(|error| format!("`{text}` is no adapter: {error}"))?;
            return Self::of_fields(fields);
        }
        match text.split_once('=') {
            Some((name, path)) if !name.is_empty() && !path.is_empty() => {
                Ok(Self { name: name.to_owned(), path: path.to_owned(), base_model_name: None })
            }
            _ => Err(format!(
                "`{text}` is no adapter; expected name=path, or {{\"name\": …, \"path\": …}}"
            )),
        }
    }

    fn of_fields(fields: Fields) -> Result<Self, String> {
        let Fields { name, path, base_model_name, .. } = fields;
        if name.is_empty() || path.is_empty() {
            return Err("name and path of an adapter must not be empty".to_owned());
        }
        Ok(Self { name, path, base_model_name })
    }
}

impl Serialize for LoraModule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.base_model_name {
            None => serializer.serialize_str(&format!("{}={}", self.name, self.path)),
            Some(base) => {
                let LoraModule { name, path, .. } = self;
                let object = serde_json::json!({
                    "name": name, "path": path, "base_model_name": base,
                });
                serializer.serialize_str(&object.to_string())
            }
        }
    }
}

/// Reads a list of adapters: texts or tables. A single text has one, or several with white space
/// between them, or a JSON list.
pub(super) fn lora_modules<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Vec<LoraModule>, D::Error> {
    from.deserialize_any(Modules)
}

struct Modules;

/// One element of a list.
struct Module(Vec<LoraModule>);

impl<'de> Visitor<'de> for Modules {
    type Value = Vec<LoraModule>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of adapters, each as name=path or as an object")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        let text = text.trim();
        if text.starts_with('[') {
            let list: Vec<Fields> = serde_json::from_str(text).map_err(E::custom)?;
            return list
                .into_iter()
                .map(LoraModule::of_fields)
                .collect::<Result<_, _>>()
                .map_err(E::custom);
        }
        if text.starts_with('{') {
            return LoraModule::parse(text).map(|module| vec![module]).map_err(E::custom);
        }
        text.split_whitespace().map(LoraModule::parse).collect::<Result<_, _>>().map_err(E::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut modules = Vec::new();
        while let Some(Module(some)) = items.next_element()? {
            modules.extend(some);
        }
        Ok(modules)
    }
}

impl<'de> Deserialize<'de> for Module {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct One;
        impl<'de> Visitor<'de> for One {
            type Value = Module;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an adapter as name=path, or as an object with name and path")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Module, E> {
                if text.trim().starts_with('[') {
                    return Modules.visit_str(text).map(Module);
                }
                LoraModule::parse(text).map(|module| Module(vec![module])).map_err(E::custom)
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, map: A) -> Result<Module, A::Error> {
                let fields = Fields::deserialize(MapAccessDeserializer::new(map))?;
                let module = LoraModule::of_fields(fields).map_err(A::Error::custom)?;
                Ok(Module(vec![module]))
            }
        }
        from.deserialize_any(One)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(value: serde_json::Value) -> Result<Vec<LoraModule>, String> {
        lora_modules(value).map_err(|error| error.to_string())
    }

    fn module(name: &str, path: &str) -> LoraModule {
        LoraModule { name: name.to_owned(), path: path.to_owned(), base_model_name: None }
    }

    #[test]
    fn every_form_of_vllms_is_read() {
        let both = vec![module("a", "x/y"), module("b", "z")];
        assert_eq!(read(json!("a=x/y b=z")).unwrap(), both);
        assert_eq!(read(json!(["a=x/y", "b=z"])).unwrap(), both);
        assert_eq!(read(json!([{"name": "a", "path": "x/y"}, "b=z"])).unwrap(), both);
        assert_eq!(read(json!([r#"{"name": "a", "path": "x/y"}"#, "b=z"])).unwrap(), both);
        let list = r#"[{"name": "a", "path": "x/y"}, {"name": "b", "path": "z"}]"#;
        assert_eq!(read(json!(list)).unwrap(), both);
        assert_eq!(read(json!([list])).unwrap(), both);
        let with_base = read(json!(r#"{"name":"a","path":"p","base_model_name":"m"}"#)).unwrap();
        assert_eq!(with_base[0].base_model_name.as_deref(), Some("m"));
        let of_experts = json!([{"name": "a", "path": "x/y", "is_3d_lora_weight": true}, "b=z"]);
        assert_eq!(read(of_experts).unwrap(), both);
    }

    #[test]
    fn other_texts_are_refused_with_the_form() {
        for wrong in [json!(["a"]), json!(["=p"]), json!(["a="]), json!([{"name": "a"}])] {
            assert!(read(wrong.clone()).is_err(), "{wrong}");
        }
        assert!(read(json!(["a"])).unwrap_err().contains("name=path"));
    }
}
