//! Which of several channels or records began first.

/// Returns the indices of these items from the oldest to the youngest. Each item has the [epoch and
/// counter](crate::UniqueId::epoch_and_counter) of its id, if any, and a second key: the time at
/// which it was first seen, and its place in the stream.
///
/// Two ids that Asterisk made are compared by epoch and counter. An id that was chosen through an
/// API carries no time, so its item comes before the first item that was seen after it. If both
/// were seen at once, the chosen id is the older one, because a channel with a chosen id is
/// originated and exists before the channels that it dials.
pub(crate) fn by_age<S: Ord + Copy>(items: &[(Option<(u64, u64)>, S)]) -> Vec<usize> {
    let (mut made, mut chosen): (Vec<usize>, Vec<usize>) =
        (0..items.len()).partition(|&i| items[i].0.is_some());
    made.sort_by_key(|&i| items[i]);
    chosen.sort_by_key(|&i| items[i].1);
    let mut chosen = chosen.into_iter().peekable();
    let mut order = Vec::with_capacity(items.len());
    // Events can come out of order, so an older id can be seen after a younger one.
    let mut latest: Option<S> = None;
    for i in made {
        latest = latest.max(Some(items[i].1));
        while let Some(older) = chosen.next_if(|&other| Some(items[other].1) <= latest) {
            order.push(older);
        }
        order.push(i);
    }
    order.extend(chosen);
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::UniqueId;
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;

    /// Returns the ids from the oldest to the youngest. `seen` has the ids and the times at which
    /// each was first seen.
    fn sort_by_age<'a>(seen: &[(&'a str, i64)]) -> Vec<&'a str> {
        let mut items = Vec::new();
        for &(id, at) in seen {
            let made = UniqueId::new(id).and_then(|id| id.epoch_and_counter());
            items.push((made, at));
        }
        by_age(&items).into_iter().map(|i| seen[i].0).collect()
    }

    #[test]
    fn asterisk_ids_are_ordered_by_number_not_by_arrival() {
        let seen = [("pbx1-1795151317.146", 1), ("pbx1-1795151317.99", 2)];
        assert_eq!(
            sort_by_age(&seen),
            ["pbx1-1795151317.99", "pbx1-1795151317.146"]
        );
    }

    #[test]
    fn chosen_ids_are_ordered_by_the_time_of_their_first_event() {
        let uuid = "9f1c2d34-0000-4000-8000-000000000001";
        for chosen in [
            uuid,
            "4711",
            "1234567890",
            "12.5",
            "deal-77.1",
            "2999999999",
        ] {
            let before = [("1772445604.3", 5), (chosen, 1)];
            assert_eq!(sort_by_age(&before), [chosen, "1772445604.3"]);
            let after = [(chosen, 5), ("1772445604.3", 1)];
            assert_eq!(sort_by_age(&after), ["1772445604.3", chosen]);
            let between = [("1772445609.4", 8), (chosen, 5), ("1772445604.3", 1)];
            assert_eq!(
                sort_by_age(&between),
                ["1772445604.3", chosen, "1772445609.4"]
            );
        }
    }

    proptest! {
        #[test]
        fn age_order_is_sorted_and_contains_every_item_once(
            items in vec((option::of((0..4_u64, 0..4_u64)), 0..6_i64), 0..12),
        ) {
            let order = by_age(&items);
            let made: Vec<_> = order.iter().filter_map(|&i| items[i].0).collect();
            prop_assert!(made.is_sorted());
            let chosen = order.iter().filter(|&&i| items[i].0.is_none());
            prop_assert!(chosen.map(|&i| items[i].1).is_sorted());
            let mut all = order;
            all.sort_unstable();
            prop_assert!(all.into_iter().eq(0..items.len()));
        }
    }
}
