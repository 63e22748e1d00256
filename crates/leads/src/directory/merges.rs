//! Follows merges to the surviving lead.

use callbridge_call::EpochSeconds;
use callbridge_model::LeadId;

/// Maximum number of merges to follow from one lead.
const HOPS_MAX: usize = 1_000;

/// The end of a chain of merges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Root {
    /// The surviving lead.
    pub lead: LeadId,
    /// When the newest merge on the way to `lead` happened, or `None` for a lead that was never
    /// merged.
    pub merged: Option<EpochSeconds>,
}

/// Follows the merges starting from `lead`. `merged` returns when a lead was merged and into which
/// one. A loop is cut at its oldest merge, or if there are several from the same second, at that of
/// the lowest lead, so that the result is the same for every lead in the loop.
///
/// # Errors
/// Returns the error of `merged`.
pub fn root<E>(
    lead: LeadId,
    mut merged: impl FnMut(LeadId) -> Result<Option<(EpochSeconds, LeadId)>, E>,
) -> Result<Root, E> {
    let mut path: Vec<(LeadId, EpochSeconds)> = Vec::new();
    let mut here = lead;
    while path.len() < HOPS_MAX
        && let Some((at, into)) = merged(here)?
    {
        path.push((here, at));
        here = into;
        let Some(begins) = path.iter().position(|(lead, _)| *lead == here) else {
            continue;
        };
        let oldest = (begins..path.len()).min_by_key(|at| (path[*at].1, path[*at].0));
        if let Some(cut) = oldest {
            here = path[cut].0;
            // The merge at the cut and any later merges on the path don't count.
            path.truncate(cut);
        }
        break;
    }
    Ok(Root {
        lead: here,
        merged: path.iter().map(|(_, at)| *at).max(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::convert::Infallible;

    type Merges = BTreeMap<i64, (i64, i64)>;

    fn lead(id: i64) -> LeadId {
        LeadId::new(id).expect("positive")
    }

    fn chain_end(merges: &Merges, from: i64) -> (i64, Option<i64>) {
        let Ok(root) = root(lead(from), |merged| {
            let found = merges.get(&merged.get());
            Ok::<_, Infallible>(found.map(|(at, into)| (EpochSeconds::new(*at), lead(*into))))
        });
        (root.lead.get(), root.merged.map(EpochSeconds::get))
    }

    #[test]
    fn merge_chain_ends_at_survivor_and_loop_at_oldest_merge() {
        let merges: Merges = [(1, (30, 2)), (2, (20, 3)), (7, (5, 7)), (8, (9, 7))].into();
        assert_eq!(chain_end(&merges, 1), (3, Some(30)));
        assert_eq!(chain_end(&merges, 3), (3, None));
        assert_eq!(chain_end(&merges, 7), (7, None), "merged into itself");
        assert_eq!(chain_end(&merges, 8), (7, Some(9)));
        let looped: Merges = [(1, (30, 2)), (2, (20, 3)), (3, (10, 1)), (9, (99, 2))].into();
        assert_eq!(chain_end(&looped, 1), (3, Some(30)));
        assert_eq!(chain_end(&looped, 2), (3, Some(20)));
        assert_eq!(chain_end(&looped, 3), (3, None));
        assert_eq!(chain_end(&looped, 9), (3, Some(99)));
    }

    proptest! {
        #[test]
        fn leads_of_a_merge_loop_end_at_the_same_lead(
            merges in prop::collection::btree_map(1_i64..9, (0_i64..5, 1_i64..9), 0..9),
            from in 1_i64..9,
        ) {
            let (end, _) = chain_end(&merges, from);
            prop_assert_eq!(chain_end(&merges, end), (end, None));
            if from != end && let Some((_, into)) = merges.get(&from) {
                prop_assert_eq!(chain_end(&merges, *into).0, end);
            }
        }
    }
}
