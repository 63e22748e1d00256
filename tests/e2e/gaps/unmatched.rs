//! Tests that callbridge reports a misspelled trunk, and one that isn't given by any flag.

use crate::e2e::operations::monitoring::metrics;
use crate::support::crm::{self, RATE_FLAG};
use crate::support::program::Place;
use crate::support::recordings::{self, TRUNKS};
use callbridge_model::status::{FindingKind, OverallState, SourceState, Status};

const WARNING: &str = "isn't part of any trunk";

/// Returns the prefixes of unmatched channels, along with the number of calls for each.
fn unmatched_prefixes(status: &Status) -> Vec<(&str, u64)> {
    let seen = status.unmatched.iter();
    seen.map(|channel| (channel.prefix.as_str(), channel.calls))
        .collect()
}

#[tokio::test]
async fn misspelled_trunk_is_counted_and_warned_once_until_fixed() {
    let (place, crm) = (Place::new(), crm::start().await);
    for name in ["inbound_answered", "outbound_answered", "internal_call"] {
        place.append("calls.ami", &recordings::one(name).ami);
    }
    let source = place.file("calls.ami", "ami");
    let listen = "--listen=127.0.0.1:0";
    let misspelled_trunk = TRUNKS[0].replace("PJSIP/city", "PJSIP/citty");
    let mut program = place.run(&crm.url(), &[&source, &misspelled_trunk, RATE_FLAG, listen]);
    let status = program
        .until("three calls, all internal", |current| {
            current.books.internal == 3
        })
        .await;
    assert_eq!(unmatched_prefixes(&status), [("PJSIP/city", 2)]);
    let kinds: Vec<FindingKind> = status.problems.iter().map(|problem| problem.kind).collect();
    assert_eq!(
        (status.verdict, &*kinds),
        (OverallState::Attention, &[FindingKind::NoTrunk][..])
    );
    assert!(
        status.problems[0].message.contains("PJSIP/city (2 calls)"),
        "{status:?}"
    );
    let exported = metrics(&program).await;
    let line = "callbridge_unmatched_channels_total{source=\"pbx1/file";
    let line = exported
        .lines()
        .find(|exported_line| exported_line.starts_with(line))
        .expect("the counter");
    assert!(line.ends_with("prefix=\"PJSIP/city\"} 2"), "{line}");
    program.terminate().await;
    let log = place.logs();
    let warnings: Vec<&str> = log.lines().filter(|line| line.contains(WARNING)).collect();
    assert!(
        warnings.len() == 1 && warnings[0].contains("id=PJSIP/city"),
        "{log}"
    );
    let mut program = place.run(&crm.url(), &[&source, TRUNKS[0], RATE_FLAG]);
    let status = program
        .until("the right trunk", |current| {
            let mut sources = current.sources.iter();
            current.unmatched.is_empty() && sources.all(|source| source.state != SourceState::Down)
        })
        .await;
    assert_eq!(status.verdict, OverallState::Ok, "{:?}", status.problems);
    program.terminate().await;
}

/// A customer calls in and is in the same bridge as `other`, which nobody dialed.
fn call_bridged_with(other: &str) -> String {
    let customer = ("PJSIP/city-00000001", 1);
    let other = (other, 2);
    let ring = "ChannelStateDesc: Ring\r\nCallerIDNum: 998901110001\r\n";
    let bridge = "BridgeUniqueid: b1\r\nBridgeTechnology: simple_bridge\r\n";
    let mut text = String::new();
    for (at, name, (channel, id), more) in [
        (0, "Newchannel", customer, ring),
        (1, "Newchannel", other, "ChannelStateDesc: Up\r\n"),
        (1, "Newstate", customer, "ChannelStateDesc: Up\r\n"),
        (2, "BridgeEnter", customer, bridge),
        (2, "BridgeEnter", other, bridge),
        (9, "BridgeLeave", other, bridge),
        (9, "BridgeLeave", customer, bridge),
        (10, "Hangup", other, "Cause: 16\r\n"),
        (10, "Hangup", customer, "Cause: 16\r\n"),
    ] {
        text += &format!(
            "Event: {name}\r\nTimestamp: 17951640{at:02}.000000\r\nChannel: {channel}\r\n\
             Uniqueid: 1795164000.{id}\r\nLinkedid: 1795164000.1\r\n{more}\r\n"
        );
    }
    text
}

#[tokio::test]
async fn channel_that_may_be_a_phone_is_warned_once_until_named() {
    let (place, crm) = (Place::new(), crm::start().await);
    place.write("calls.ami", call_bridged_with("TAPI/5-1"));
    let source = place.file("calls.ami", "ami");
    let listen = "--listen=127.0.0.1:0";
    let mut program = place.run(&crm.url(), &[&source, TRUNKS[0], RATE_FLAG, listen]);
    let status = program
        .until("a call with an unknown technology", |current| {
            !current.unknown_channels.is_empty()
        })
        .await;
    let unknown = &status.unknown_channels[0];
    assert_eq!((unknown.prefix.as_str(), unknown.calls), ("TAPI/5", 1));
    assert_eq!(unmatched_prefixes(&status), []);
    let found = status.problems.iter();
    let kinds: Vec<FindingKind> = found.map(|problem| problem.kind).collect();
    assert!(kinds.contains(&FindingKind::UnknownTechnology), "{kinds:?}");
    assert!(!kinds.contains(&FindingKind::NoTrunk), "{kinds:?}");
    // The metric is about outside lines.
    assert!(!metrics(&program).await.contains("TAPI"));
    program.terminate().await;
    let log = place.logs();
    let warned = log.lines().filter(|line| line.contains("id=TAPI/5"));
    assert_eq!(warned.count(), 1, "{log}");
    let later = call_bridged_with("TAPI/5-1").replace("17951640", "17951650");
    place.append("calls.ami", later.as_bytes());
    let other = "--trunk=tapi=TAPI/6*";
    let mut program = place.run(&crm.url(), &[&source, TRUNKS[0], other, RATE_FLAG]);
    program
        .until("another call on a channel that no trunk names", |current| {
            let mut channels = current.unknown_channels.iter();
            channels.any(|channels| channels.calls == 2)
        })
        .await;
    program.terminate().await;
    let own = "--trunk=tapi=TA*/5*";
    let mut program = place.run(&crm.url(), &[&source, TRUNKS[0], own, RATE_FLAG]);
    program
        .until("a trunk that names the channel", |current| {
            current.unknown_channels.is_empty()
        })
        .await;
    program.terminate().await;
}

#[tokio::test]
async fn trunk_pattern_that_matches_phones_is_logged_at_start() {
    let (place, crm) = (Place::new(), crm::start().await);
    place.write("calls.ami", "");
    let source = place.file("calls.ami", "ami");
    let wide = TRUNKS[0].replace("PJSIP/city", "PJSIP/*");
    let mut program = place.run(&crm.url(), &[&source, &wide, RATE_FLAG]);
    program.until("the daemon runs", |_| true).await;
    program.terminate().await;
    let log = place.logs();
    let warning = log
        .lines()
        .find(|line| line.contains("PJSIP/* also matches phones"));
    assert!(
        warning.is_some_and(|line| line.contains("trunk city")),
        "{log}"
    );
}
