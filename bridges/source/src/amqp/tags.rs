//! Finds the deliveries that a verdict rejects or acknowledges. This module does no I/O.

use crate::verdict::PendingVerdicts;
use std::collections::BTreeMap;

/// One connection's deliveries that have no verdict yet. Delivery tags start at 1 on each
/// connection, whereas frame numbers continue, so a verdict on a frame from an earlier connection
/// doesn't match any delivery here.
#[derive(Debug, Default)]
pub(super) struct Tags {
    /// Delivery tags by frame number.
    pub(super) outstanding: BTreeMap<u64, u64>,
}

impl Tags {
    /// Returns the tags of the deliveries to reject, and the last tag of the committed deliveries.
    /// The rejections must be sent first, because the acknowledgment covers all deliveries up to
    /// its tag.
    pub(super) fn apply(&mut self, judged: &PendingVerdicts) -> (Vec<u64>, Option<u64>) {
        let mut rejected = Vec::new();
        for seq in &judged.refused {
            rejected.extend(self.outstanding.remove(seq));
        }
        let open = self.outstanding.split_off(&(judged.through + 1));
        let committed = std::mem::replace(&mut self.outstanding, open);
        (rejected, committed.into_values().last())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn pending_verdicts(through: u64, refused: &[u64]) -> PendingVerdicts {
        PendingVerdicts {
            through,
            refused: refused.to_vec(),
        }
    }

    fn tags(from_seq: u64, many: u64) -> Tags {
        let mut tags = Tags::default();
        for tag in 1..=many {
            tags.outstanding.insert(from_seq + tag - 1, tag);
        }
        tags
    }

    #[test]
    fn acknowledgment_covers_all_committed_messages() {
        let mut tags = tags(1, 10);
        assert_eq!(tags.apply(&pending_verdicts(7, &[])), (vec![], Some(7)));
        assert_eq!(tags.apply(&pending_verdicts(7, &[])), (vec![], None));
        assert_eq!(tags.apply(&pending_verdicts(10, &[])), (vec![], Some(10)));
        assert!(tags.outstanding.is_empty());
    }

    #[test]
    fn refused_deliveries_are_rejected_and_others_acknowledged() {
        let mut tags = tags(1, 5);
        let answers = tags.apply(&pending_verdicts(5, &[2, 5]));
        assert_eq!(answers, (vec![2, 5], Some(4)));
    }

    #[test]
    fn verdicts_on_an_older_connection_change_nothing() {
        let mut tags = tags(100, 3);
        assert_eq!(tags.apply(&pending_verdicts(99, &[5, 99])), (vec![], None));
        assert_eq!(tags.apply(&pending_verdicts(101, &[])), (vec![], Some(2)));
    }

    proptest! {
        /// Checks against a simulated broker that each delivery gets exactly one response, in
        /// accordance with its verdict.
        #[test]
        fn every_delivery_is_answered_once_with_its_verdict(
            many in 1_u64..40,
            steps in vec((0_u64..45, vec(1_u64..45, 0..4)), 1..12),
        ) {
            let mut tags = tags(1, many);
            let mut broker: BTreeMap<u64, &str> = (1..=many).map(|tag| (tag, "open")).collect();
            let (mut through, mut refusable) = (0, 1);
            for (next, mut refused) in steps {
                // The intake only refuses frames that it hasn't committed before.
                refused.retain(|seq| *seq >= refusable && *seq <= many);
                through = next.max(through);
                refusable = through + 1;
                let (rejected, ack_through) = tags.apply(&pending_verdicts(through, &refused));
                for tag in rejected {
                    prop_assert_eq!(broker.insert(tag, "refused"), Some("open"));
                }
                if let Some(tag) = ack_through {
                    prop_assert_eq!(broker[&tag], "open");
                    let open = broker.range_mut(..=tag).filter(|(_, s)| **s == "open");
                    open.for_each(|(_, state)| *state = "acked");
                }
                for (tag, state) in &broker {
                    match *state {
                        "open" => prop_assert!(*tag > through),
                        "acked" => prop_assert!(*tag <= through),
                        _ => {}
                    }
                }
            }
        }
    }
}
