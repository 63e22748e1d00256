//! Tests of which extension a phone has if it dials without logging in, as browser phones and
//! phones that aren't on SIP do.

use crate::expected::finished_calls;
use crate::switch::{Switch, line};

const CUSTOMER: &str = "998901110001";

/// Returns the call to the customer placed by a channel with this name and these headers.
fn call_from(name: &str, headers: &[(&str, &str)]) -> Vec<String> {
    let mut switch = Switch::default();
    switch.at(0).dial_without_login("phone", name, headers);
    switch.dial_out("far", ("city", CUSTOMER), ("phone", "phone"));
    switch.at(1000).answer("far").answer("phone");
    switch.bridge("phone", "far");
    switch.at(5000).unbridge("phone", "far");
    switch.hang_up("phone").hang_up("far");
    finished_calls(&switch.messages).iter().map(line).collect()
}

fn outbound_of(extension: &str) -> Vec<String> {
    let line =
        format!("phone out city {CUSTOMER} [{extension}] {extension} talk 4.0 of 5.0, whole");
    vec![line]
}

#[test]
fn phone_that_is_not_on_sip_has_its_callers_number() {
    for name in [
        "SKINNY/internal/SEP0011AA22BB33:1/1",
        "FreeTDM/1:1/998901110001",
        "verto.rtc/998901110001",
    ] {
        let headers = [("Caller-Orig-Caller-ID-Number", "101")];
        assert_eq!(call_from(name, &headers), outbound_of("101"), "{name}");
    }
}

#[test]
fn browser_phone_without_login_has_its_presence_id() {
    let headers = [
        ("Channel-Presence-ID", "102@pbx.lab"),
        ("Caller-Orig-Caller-ID-Number", CUSTOMER),
    ];
    for name in ["verto.rtc/998901110001", "sofia/webrtc/anna@pbx.lab"] {
        assert_eq!(call_from(name, &headers), outbound_of("102"), "{name}");
    }
}

#[test]
fn outside_number_is_never_the_extension_of_a_phone() {
    let headers = [
        ("Channel-Presence-ID", "998901110007@203.0.113.5"),
        ("Caller-Orig-Caller-ID-Number", "998901110007"),
    ];
    for name in [
        "sofia/external/998901110007@203.0.113.5",
        "FreeTDM/2:1/7001",
    ] {
        let calls = call_from(name, &headers);
        assert!(!calls[0].contains("[998901110007]"), "{name}: {calls:?}");
    }
}
