//! Settings of the exchange of encoders' results between engines: vLLM's `--ec-transfer-config`.

use std::path::PathBuf;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Default of the largest size of the folder, bytes.
const MAX_BYTES: u64 = 16 << 30;
/// The names of the connector over a folder, the newest first.
const CONNECTORS: [&str; 2] = ["ECExampleConnector", "ECSharedStorageConnector"];

/// How results of the encoder of images and sounds go from one engine to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EcTransferConfig {
    /// The part of this engine.
    pub role: EcRole,
    /// The folder that the engines share.
    pub shared_storage_path: PathBuf,
    /// Largest size of the folder. The oldest results are removed first.
    pub max_bytes: u64,
}

/// The part of an engine in the exchange. The words are vLLM's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum EcRole {
    /// It stores what it encodes.
    #[serde(rename = "ec_producer")]
    Producer,
    /// It takes what is stored, and encodes the rest.
    #[serde(rename = "ec_consumer")]
    Consumer,
    /// Both.
    #[serde(rename = "ec_both")]
    Both,
}

impl EcRole {
    /// Returns whether the engine stores results.
    #[must_use]
    pub fn stores(self) -> bool {
        self != Self::Consumer
    }

    /// Returns whether the engine takes results.
    #[must_use]
    pub fn takes(self) -> bool {
        self != Self::Producer
    }
}

/// The fields as vLLM has them.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    ec_connector: String,
    ec_role: EcRole,
    ec_connector_extra_config: ExtraConfig,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExtraConfig {
    shared_storage_path: PathBuf,
    #[serde(default = "max_bytes")]
    max_bytes: u64,
}

fn max_bytes() -> u64 {
    MAX_BYTES
}

impl Serialize for EcTransferConfig {
    /// Writes the fields as text, as the flag takes them.
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let fields = Fields {
            ec_connector: CONNECTORS[0].to_owned(),
            ec_role: self.role,
            ec_connector_extra_config: ExtraConfig {
                shared_storage_path: self.shared_storage_path.clone(),
                max_bytes: self.max_bytes,
            },
        };
        to.serialize_str(&serde_json::to_string(&fields).unwrap_or_default())
    }
}

impl<'de> Deserialize<'de> for EcTransferConfig {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a JSON object, as text or as a table")]
        enum Written {
            Text(String),
            Object(serde_json::Map<String, serde_json::Value>),
        }
        let fields = match Written::deserialize(from)? {
            Written::Text(text) => serde_json::from_str(&text),
            Written::Object(object) => serde_json::from_value(object.into()),
        };
        let Fields { ec_connector, ec_role, ec_connector_extra_config } =
            fields.map_err(de::Error::custom)?;
        if !CONNECTORS.contains(&&*ec_connector) {
            let accepted = CONNECTORS.join(" and ");
            let why = format!("ec_connector is {ec_connector}, and {accepted} are supported");
            return Err(de::Error::custom(why));
        }
        let ExtraConfig { shared_storage_path, max_bytes } = ec_connector_extra_config;
        Ok(Self { role: ec_role, shared_storage_path, max_bytes })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_fields_are_those_of_vllm() {
        let read = |text: &str| serde_json::from_value::<EcTransferConfig>(json!(text));
        let text = r#"{"ec_connector": "ECSharedStorageConnector", "ec_role": "ec_both",
            "ec_connector_extra_config": {"shared_storage_path": "/srv/ec"}}"#;
        let config = read(text).unwrap();
        assert!(config.role.stores() && config.role.takes());
        assert_eq!(
            (config.shared_storage_path.to_str(), config.max_bytes),
            (Some("/srv/ec"), MAX_BYTES)
        );
        let again: EcTransferConfig =
            serde_json::from_value(serde_json::to_value(&config).unwrap()).unwrap();
        assert_eq!(again, config);
        let other = read(&text.replace("ECSharedStorageConnector", "NixlConnector")).unwrap_err();
        assert!(other.to_string().contains("ECExampleConnector"), "{other}");
        for wrong in [
            text.replace("ec_both", "both"),
            text.replace("ec_role", "role"),
            text.replace("shared_storage_path", "path"),
        ] {
            assert!(read(&wrong).is_err(), "{wrong}");
        }
    }
}
