//! What leads from a text to something open, looked up and never walked: the order of its entries
//! is by chance, so nothing that depends on it can be asked.

use foldhash::quality::RandomState;
use smol_str::SmolStr;
use std::collections::HashMap;

/// Entries by their texts. A look-up costs the same among ten thousand calls as among ten.
#[derive(Debug)]
pub(super) struct Index<V>(HashMap<SmolStr, V, RandomState>);

impl<V> Default for Index<V> {
    fn default() -> Self {
        Self(HashMap::default())
    }
}

impl<V> Index<V> {
    pub(super) fn get(&self, text: &str) -> Option<&V> {
        self.0.get(text)
    }

    pub(super) fn has(&self, text: &str) -> bool {
        self.0.contains_key(text)
    }

    /// Puts an entry under the text; what stood there before.
    pub(super) fn insert(&mut self, text: &str, value: V) -> Option<V> {
        match self.0.get_mut(text) {
            Some(known) => Some(std::mem::replace(known, value)),
            None => self.0.insert(text.into(), value),
        }
    }

    /// Takes the entry out. What many entries needed is given back when few are left.
    pub(super) fn remove(&mut self, text: &str) {
        self.0.remove(text);
        if self.0.len() < self.0.capacity() / 16 {
            self.0.shrink_to(self.0.len() * 4);
        }
    }

    pub(super) fn clear(&mut self) {
        self.0 = HashMap::default();
    }
}
