//! Arguments as nested elements, whose names the tool's schema gives types: MiniMax-M3.

use indexmap::IndexMap;
use serde_json::Value;

use super::{
    super::scan::quote_json,
    schema::{Types, resolved},
    tagged_values::convert,
};

/// Stands before every tag.
pub(super) const NAMESPACE: &str = "]<]minimax[>[";
/// The field of text between the children of an element.
const MIXED_TEXT: &str = "$text";
/// Deepest nesting of elements.
const MAX_DEPTH: usize = 60;
/// Deepest nesting of a schema's alternatives, and most alternatives that are examined.
const MAX_ALTERNATIVES: [usize; 2] = [16, 1024];

/// The schema of a tool that has none.
static NO_SCHEMA: Value = Value::Null;

/// An element's content.
#[derive(Debug)]
enum Element {
    Text(String),
    /// Names and contents, in the order of the text.
    Children(Vec<(String, Element)>),
}

/// Returns the arguments that `text` holds as JSON, without the closing brace, and whether all of
/// the text was elements. The parameters before a malformed one count.
pub(super) fn arguments(text: &str, parameters: Option<&Value>) -> (String, bool) {
    let (mut elements, mut rest) = (Vec::new(), text.trim_start());
    let mut is_whole = true;
    while !rest.is_empty() {
        let Some((name, content, after)) = element(rest, MAX_DEPTH) else {
            is_whole = false;
            break;
        };
        elements.push((name, content));
        rest = after.trim_start();
    }
    let root = parameters.unwrap_or(&NO_SCHEMA);
    let mut json = object(&elements, root.get("properties"), None, root);
    json.pop();
    (json, is_whole)
}

/// Reads the element at the beginning of `text`. Returns its name, its content and the text after
/// it.
fn element(text: &str, depth_left: usize) -> Option<(String, Element, &str)> {
    let depth_left = depth_left.checked_sub(1)?;
    let (name, mut rest) = text.strip_prefix(NAMESPACE)?.strip_prefix('<')?.split_once('>')?;
    if name.trim().is_empty() || name.starts_with('/') {
        return None;
    }
    let close = format!("{NAMESPACE}</{name}>");
    let (mut words, mut children) = (String::new(), Vec::new());
    loop {
        let tag = rest.find(NAMESPACE)?;
        words.push_str(&rest[..tag]);
        rest = &rest[tag..];
        if let Some(after) = rest.strip_prefix(&*close) {
            return Some((name.to_owned(), content(words, children), after));
        }
        let (child, content, after) = element(rest, depth_left)?;
        children.push((child, content));
        rest = after;
    }
}

fn content(words: String, mut children: Vec<(String, Element)>) -> Element {
    if children.is_empty() {
        return Element::Text(words);
    }
    if !words.trim().is_empty() {
        let mut name = MIXED_TEXT.to_owned();
        while children.iter().any(|(child, _)| *child == name) {
            name.insert(0, '$');
        }
        children.push((name, Element::Text(words)));
    }
    Element::Children(children)
}

/// Returns an element as JSON of its schema.
fn value(element: &Element, schema: Option<&Value>, root: &Value) -> String {
    let schema = schema.filter(|schema| schema.is_object());
    let container = schema.and_then(|schema| {
        let [depth, mut schemas_left] = MAX_ALTERNATIVES;
        container(schema, root, depth, &mut schemas_left)
    });
    match element {
        Element::Text(text) => {
            let types = schema.and_then(|schema| Types::of(schema, root)).unwrap_or(Types::STRING);
            match container {
                // An empty list or object is written as an empty element.
                Some(Container::List(_)) if !types.string && text.trim().is_empty() => "[]".into(),
                Some(Container::Object(_)) if !types.string && text.trim().is_empty() => {
                    "{}".into()
                }
                _ if types == Types::STRING => quote_json(text),
                _ => convert(text, types),
            }
        }
        Element::Children(children) => match container {
            Some(Container::List(items)) => {
                list(children.iter().map(|(_, child)| value(child, items, root)))
            }
            Some(Container::Object(schema)) => {
                let additional = schema.get("additionalProperties");
                object(children, schema.get("properties"), additional, root)
            }
            None => object(children, None, None, root),
        },
    }
}

/// Returns named elements as an object. Elements of the same name become a list.
fn object(
    elements: &[(String, Element)],
    properties: Option<&Value>,
    additional: Option<&Value>,
    root: &Value,
) -> String {
    let mut values: IndexMap<&str, Vec<String>> = IndexMap::new();
    for (name, element) in elements {
        let schema = properties.and_then(|properties| properties.get(name)).or(additional);
        values.entry(name).or_default().push(value(element, schema, root));
    }
    let fields = values.into_iter().map(|(name, mut values)| {
        let value = match values.len() {
            1 => values.remove(0),
            _ => list(values),
        };
        format!("{}: {value}", quote_json(name))
    });
    format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
}

fn list(values: impl IntoIterator<Item = String>) -> String {
    format!("[{}]", values.into_iter().collect::<Vec<_>>().join(", "))
}

/// The schema of a value with children.
enum Container<'a> {
    /// With the schema of the items.
    List(Option<&'a Value>),
    Object(&'a Value),
}

/// Returns the first alternative of a schema that is a list or an object.
fn container<'a>(
    schema: &'a Value,
    root: &'a Value,
    depth_left: usize,
    schemas_left: &mut usize,
) -> Option<Container<'a>> {
    let depth_left = depth_left.checked_sub(1)?;
    *schemas_left = schemas_left.checked_sub(1)?;
    let schema = resolved(schema, root);
    let list = || Some(Container::List(schema.get("items")));
    let names = match schema.get("type") {
        Some(Value::String(name)) => vec![name.as_str()],
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
        Some(_) => Vec::new(),
        None if schema.get("items").is_some() => return list(),
        None if schema.get("properties").or(schema.get("additionalProperties")).is_some() => {
            return Some(Container::Object(schema));
        }
        None => Vec::new(),
    };
    if names.contains(&"array") {
        return list();
    }
    if names.contains(&"object") {
        return Some(Container::Object(schema));
    }
    let choices = ["anyOf", "oneOf"].into_iter().filter_map(|key| schema.get(key)?.as_array());
    choices.flatten().find_map(|choice| container(choice, root, depth_left, schemas_left))
}
