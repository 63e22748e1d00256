//! A small sorted set of strings.

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use smol_str::SmolStr;

/// Distinct strings in sorted order. The first two are stored inline, because few calls have more
/// IDs, bridges, or Local channels than that, and they're checked for each event.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Texts(SmallVec<[SmolStr; 2]>);

impl Texts {
    fn find(&self, text: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|known| known.as_str().cmp(text))
    }

    pub(crate) fn contains(&self, text: &str) -> bool {
        self.find(text).is_ok()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn insert(&mut self, text: SmolStr) {
        if let Err(place) = self.find(&text) {
            self.0.insert(place, text);
        }
    }

    pub(crate) fn remove(&mut self, text: &str) {
        if let Ok(place) = self.find(text) {
            self.0.remove(place);
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &SmolStr> {
        self.0.iter()
    }

    /// Adds another set's strings.
    pub(crate) fn extend(&mut self, other: Self) {
        other.0.into_iter().for_each(|text| self.insert(text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn texts(added: &[String]) -> Texts {
        let mut all = Texts::default();
        added.iter().for_each(|text| all.insert(text.into()));
        all
    }

    proptest! {
        #[test]
        fn texts_behave_like_a_sorted_set(
            added in vec("[a-e]{1,2}", 0..12),
            gone in vec("[a-e]{1,2}", 0..6),
            more in vec("[a-e]{1,2}", 0..6),
        ) {
            let mut plain: BTreeSet<String> = added.iter().cloned().collect();
            let mut all = texts(&added);
            for text in &gone {
                all.remove(text);
                plain.remove(text);
            }
            all.extend(texts(&more));
            plain.extend(more.iter().cloned());
            prop_assert!(all.iter().map(SmolStr::as_str).eq(plain.iter().map(String::as_str)));
            for text in added.iter().chain(&gone).chain(&more) {
                prop_assert_eq!(all.contains(text), plain.contains(text));
            }
            let written = serde_json::to_string(&all).expect("texts");
            prop_assert_eq!(&written, &serde_json::to_string(&plain).expect("texts"));
            prop_assert_eq!(serde_json::from_str::<Texts>(&written).expect("texts"), all);
        }
    }
}
