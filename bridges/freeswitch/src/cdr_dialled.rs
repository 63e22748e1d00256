//! Whom a leg dialled over which gateway, by its own file: `bridge` was run with
//! `sofia/gateway/city/998901110001`, and `originated_legs` has the leg that came of it.

use callbridge_call::{ChannelEvent, ChannelRef, ChannelTraits, EventTime, Kind, Origin};
use std::borrow::Cow;

/// Begins what is dialled over a gateway.
const GATEWAY: &str = "sofia/gateway/";
/// Legs of one leg that are read.
const LEGS_MAX: usize = 64;

/// A leg over a gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dialled {
    pub(crate) at: EventTime,
    pub(crate) id: String,
    pub(crate) gateway: String,
    pub(crate) number: String,
}

impl Dialled {
    /// Returns the events of a leg that writes no file of its own: dialled by this channel, and
    /// there until `ended` at most.
    pub(crate) fn events(
        self,
        by: &ChannelRef<'static>,
        ended: EventTime,
    ) -> [ChannelEvent<'static>; 2] {
        let dialled = Kind::DialBegin {
            by: Some(Box::new(ChannelRef::by_id(by.uniqueid.clone()))),
            dial_string: Cow::Owned(self.number.clone()),
        };
        let channel = ChannelRef {
            uniqueid: Cow::Owned(self.id),
            linkedid: by.linkedid.clone(),
            traits: Some(Box::new(ChannelTraits {
                gateway: Cow::Owned(self.gateway),
                dialled: Cow::Owned(self.number),
                fresh: true,
                ..ChannelTraits::default()
            })),
            ..ChannelRef::default()
        };
        let event = |at, kind| ChannelEvent::new(Some(at), Origin::Channel, channel.clone(), kind);
        [event(self.at, dialled), event(ended, Kind::Seen)]
    }
}

/// The legs that were made of these bridges. Where a number was dialled over several gateways, each
/// leg has its own in their order, and none if they are not as many.
pub(crate) fn dialled(bridges: &[(EventTime, &str)], originated: &str) -> Vec<Dialled> {
    let targets: Vec<(EventTime, &str, &str)> = bridges
        .iter()
        .flat_map(|&(at, data)| targets(data).map(move |(gateway, number)| (at, gateway, number)))
        .collect();
    let list = originated.strip_prefix("ARRAY::").unwrap_or(originated);
    let legs = list.split("|:").take(LEGS_MAX).filter_map(|leg| {
        let (id, rest) = leg.split_once(';')?;
        Some((id, rest.rsplit(';').next()?))
    });
    let legs: Vec<(&str, &str)> = legs.filter(|(id, _)| !id.is_empty()).collect();
    let mut found = Vec::new();
    for (place, &(id, number)) in legs.iter().enumerate() {
        let same = || targets.iter().filter(|(.., it)| *it == number);
        let of_number = legs.iter().filter(|(_, it)| *it == number).count();
        let before = legs[..place].iter().filter(|(_, it)| *it == number);
        let first = same().next();
        let one = first.filter(|(_, gateway, _)| same().all(|(_, it, _)| it == gateway));
        let in_order = (same().count() == of_number).then(|| same().nth(before.count()));
        if let Some(&(at, gateway, _)) = in_order.flatten().or(one) {
            found.push(Dialled {
                at,
                id: id.to_owned(),
                gateway: gateway.to_owned(),
                number: number.to_owned(),
            });
        }
    }
    found
}

/// Gateway and number of each that is dialled: `city` and `998901110001` by
/// `{a=b}sofia/gateway/city/998901110001,[c=d]user/101`.
fn targets(data: &str) -> impl Iterator<Item = (&str, &str)> {
    data.split(GATEWAY).skip(1).filter_map(|rest| {
        let end = rest
            .find([',', '|', ':', '^', ' ', '['])
            .unwrap_or(rest.len());
        let (gateway, number) = rest[..end].split_once('/')?;
        (!gateway.is_empty() && !number.is_empty()).then_some((gateway, number))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(data: &str, originated: &str) -> Vec<(String, String)> {
        let at = EventTime::from_seconds(1_795_211_901);
        let found = dialled(&[(at, data)], originated).into_iter();
        found.map(|it| (it.id, it.gateway)).collect()
    }

    fn pair(id: &str, gateway: &str) -> (String, String) {
        (id.to_owned(), gateway.to_owned())
    }

    #[test]
    fn each_leg_over_a_gateway_is_told_with_it() {
        let one = found("sofia/gateway/city/9989", "a;Outbound Call;9989");
        assert_eq!(one, [pair("a", "city")]);
        let group = "{x=1}user/101,[y=2]sofia/gateway/city/9989,sofia/gateway/gsm/9935";
        let legs = "ARRAY::a;Aziz;101|:b;Outbound;Call;9989|:c;;9935";
        assert_eq!(found(group, legs), [pair("b", "city"), pair("c", "gsm")]);
    }

    #[test]
    fn of_several_gateways_each_leg_has_its_own_or_none() {
        let data = "sofia/gateway/city/9989|sofia/gateway/gsm/9989";
        let both = found(data, "ARRAY::a;;9989|:b;;9989");
        assert_eq!(both, [pair("a", "city"), pair("b", "gsm")]);
        assert_eq!(found(data, "a;;9989"), []);
        let again = "sofia/gateway/city/9989|sofia/gateway/city/9989";
        assert_eq!(found(again, "a;;9989"), [pair("a", "city")]);
    }

    #[test]
    fn what_is_no_leg_over_a_gateway_is_none() {
        for (data, legs) in [
            ("", ""),
            ("user/101", "a;;101"),
            ("sofia/gateway/city", "a;;9989"),
            ("sofia/gateway//9989", "a;;9989"),
            ("sofia/gateway/city/9989", ";;9989"),
            ("sofia/gateway/city/9989", "a"),
        ] {
            assert_eq!(found(data, legs), [], "{data} {legs}");
        }
    }
}
