//! Finds the legs that a leg dialed through gateways, given the IDs, numbers, and dial strings in
//! the leg's file.

use callbridge_call::{ChannelEvent, ChannelRef, ChannelTraits, EventTime, Kind, Origin};
use std::borrow::Cow;

/// Prefix of a dial string that dials through a gateway.
const GATEWAY: &str = "sofia/gateway/";
/// Maximum number of dialed legs to read per file.
const LEGS_MAX: usize = 64;

/// A leg that was dialed through a gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Dialed {
    at: EventTime,
    pub(super) id: String,
    gateway: String,
    number: String,
}

impl Dialed {
    /// Returns the first and last events of a dialed leg that has no file. `by` is the channel that
    /// dialed it, and the leg was over by `ended` at the latest.
    pub(super) fn events(
        self,
        by: &ChannelRef<'static>,
        ended: EventTime,
    ) -> [ChannelEvent<'static>; 2] {
        let dialed = Kind::DialBegin {
            by: Some(Box::new(ChannelRef::by_id(by.uniqueid.clone()))),
            dial_string: Cow::Owned(self.number.clone()),
        };
        let channel = ChannelRef {
            uniqueid: Cow::Owned(self.id),
            linkedid: by.linkedid.clone(),
            traits: Some(Box::new(ChannelTraits {
                gateway: Cow::Owned(self.gateway),
                dialed: Cow::Owned(self.number),
                fresh: true,
                ..ChannelTraits::default()
            })),
            ..ChannelRef::default()
        };
        let begins = ChannelEvent::new(Some(self.at), Origin::Channel, channel.clone(), dialed);
        let over = ChannelEvent::new(Some(ended), Origin::Channel, channel, Kind::Seen);
        [begins, over]
    }
}

/// Returns the legs in `originated` that were dialed through a gateway.
///
/// `bridges` has the times and dial strings. If a number was dialed through several gateways,
/// they're assigned to its legs in order. If there are fewer legs than dialing attempts, these legs
/// are omitted.
pub(super) fn dialed_legs(bridges: &[(EventTime, &str)], originated: &str) -> Vec<Dialed> {
    let targets: Vec<(EventTime, &str, &str)> = bridges
        .iter()
        .flat_map(|&(at, data)| targets(data).map(move |(gateway, number)| (at, gateway, number)))
        .collect();
    let list = originated.strip_prefix("ARRAY::").unwrap_or(originated);
    let mut legs: Vec<(&str, &str)> = Vec::new();
    for leg in list.split("|:").take(LEGS_MAX) {
        if let Some((id, rest)) = leg.split_once(';')
            && let Some(number) = rest.rsplit(';').next()
            && !id.is_empty()
        {
            legs.push((id, number));
        }
    }
    let mut found = Vec::new();
    for (i, &(id, number)) in legs.iter().enumerate() {
        let same: Vec<&(EventTime, &str, &str)> = targets
            .iter()
            .filter(|(.., dialed)| *dialed == number)
            .collect();
        let target = if same.len() == count_of(number, &legs) {
            same.get(count_of(number, &legs[..i])).copied()
        } else {
            let first = same.first().copied();
            first.filter(|(_, gateway, _)| same.iter().all(|(_, other, _)| other == gateway))
        };
        if let Some(&(at, gateway, _)) = target {
            found.push(Dialed {
                at,
                id: id.to_owned(),
                gateway: gateway.to_owned(),
                number: number.to_owned(),
            });
        }
    }
    found
}

fn count_of(number: &str, legs: &[(&str, &str)]) -> usize {
    legs.iter().filter(|(_, other)| *other == number).count()
}

/// Returns the gateway and number of each target, such as `city` and `998901110001` for
/// `{a=b}sofia/gateway/city/998901110001,[c=d]user/101`.
fn targets(data: &str) -> impl Iterator<Item = (&str, &str)> {
    data.split(GATEWAY).skip(1).filter_map(|rest| {
        let end = rest
            .find([',', '|', ':', '^', ' ', '['])
            .unwrap_or(rest.len());
        let (gateway, number) = rest[..end].split_once('/')?;
        if gateway.is_empty() || number.is_empty() {
            return None;
        }
        Some((gateway, number))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dialed_pairs(data: &str, originated: &str) -> Vec<(String, String)> {
        let at = EventTime::from_seconds(1_795_211_901);
        let found = dialed_legs(&[(at, data)], originated).into_iter();
        found.map(|leg| (leg.id, leg.gateway)).collect()
    }

    fn pair(id: &str, gateway: &str) -> (String, String) {
        (id.to_owned(), gateway.to_owned())
    }

    #[test]
    fn legs_over_a_gateway_are_paired_with_it() {
        let one = dialed_pairs("sofia/gateway/city/9989", "a;Outbound Call;9989");
        assert_eq!(one, [pair("a", "city")]);
        let group = "{x=1}user/101,[y=2]sofia/gateway/city/9989,sofia/gateway/gsm/9935";
        let legs = "ARRAY::a;Aziz;101|:b;Outbound;Call;9989|:c;;9935";
        assert_eq!(
            dialed_pairs(group, legs),
            [pair("b", "city"), pair("c", "gsm")]
        );
    }

    #[test]
    fn legs_are_paired_only_if_their_gateway_is_unambiguous() {
        let data = "sofia/gateway/city/9989|sofia/gateway/gsm/9989";
        let both = dialed_pairs(data, "ARRAY::a;;9989|:b;;9989");
        assert_eq!(both, [pair("a", "city"), pair("b", "gsm")]);
        assert_eq!(dialed_pairs(data, "a;;9989"), []);
        let again = "sofia/gateway/city/9989|sofia/gateway/city/9989";
        assert_eq!(dialed_pairs(again, "a;;9989"), [pair("a", "city")]);
    }

    #[test]
    fn legs_without_a_valid_gateway_or_id_are_not_paired() {
        for (data, legs) in [
            ("", ""),
            ("user/101", "a;;101"),
            ("sofia/gateway/city", "a;;9989"),
            ("sofia/gateway//9989", "a;;9989"),
            ("sofia/gateway/city/9989", ";;9989"),
            ("sofia/gateway/city/9989", "a"),
        ] {
            assert_eq!(dialed_pairs(data, legs), [], "{data} {legs}");
        }
    }
}
