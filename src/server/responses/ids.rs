//! Ids of responses and of their items.

const RESPONSE: &str = "resp_";

/// Returns the id of a response with this name, which no client can guess.
pub(super) fn response_id(name: &str) -> String {
    format!("{RESPONSE}{name}")
}

/// Returns the part of a response's id that its items share.
pub(super) fn name_of(response_id: &str) -> &str {
    response_id.strip_prefix(RESPONSE).unwrap_or(response_id)
}

/// The ids of one response's items, those of its input first. An item's id contains that of its
/// response, so the item can be found by its id alone.
#[derive(Debug, Clone)]
pub(super) struct ItemIds {
    response: String,
    next: usize,
}

impl ItemIds {
    pub(super) fn new(response_id: &str) -> Self {
        Self { response: name_of(response_id).to_owned(), next: 0 }
    }

    /// Returns the id of the next item, which is of this kind: `msg`, `fc`, `fco`, `ctc`, `ctco`
    /// or `rs`.
    pub(super) fn next(&mut self, kind: &str) -> String {
        let id = format!("{kind}_{}_{}", self.response, self.next);
        self.next += 1;
        id
    }
}

/// Returns the response that an item with this id belongs to, if the id is one of [`ItemIds`].
pub(super) fn response_of(item_id: &str) -> Option<String> {
    let mut parts = item_id.split('_');
    let (_kind, response, _index) = (parts.next()?, parts.next()?, parts.next()?);
    parts.next().is_none().then(|| format!("{RESPONSE}{response}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_names_its_response() {
        let response = response_id("0123");
        let mut ids = ItemIds::new(&response);
        let (first, second) = (ids.next("msg"), ids.next("fc"));
        assert_ne!(first, second);
        assert_eq!(response_of(&first).as_ref(), Some(&response));
        assert_eq!(response_of(&second), Some(response));
        for foreign in ["", "msg_1", "msg_a_b_c", "fc-7"] {
            assert_eq!(response_of(foreign), None, "{foreign}");
        }
    }
}
