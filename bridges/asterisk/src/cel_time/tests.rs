use super::*;

fn seconds(at: Option<EventTime>) -> Option<i64> {
    at.map(|at| at.floor_seconds().get())
}

#[test]
fn absolute_times_are_read_without_a_zone() {
    let mut clock = CelClock::default();
    for (text, micros) in [
        ("1524597350.146287", Some(1_524_597_350_146_287)),
        ("2018-04-25T00:15:50.146+05:00", Some(1_524_597_350_146_000)),
        ("", None),
        ("yesterday", None),
    ] {
        let at = clock.read_time(text, "", false);
        assert_eq!(at.map(EventTime::micros), micros, "{text}");
    }
}

#[test]
fn utc_offset_is_learned_from_a_new_channel() {
    let mut clock = CelClock::default();
    let born = clock.read_time("2026-11-20 10:08:38", "pbx1-1795151317.146", true);
    assert_eq!(seconds(born), Some(1_795_151_318));
    // Half an hour into the call, the offset is still used.
    let later = clock.read_time("2026-11-20 10:38:37", "pbx1-1795151317.146", false);
    assert_eq!(seconds(later), Some(1_795_153_117));
}

#[test]
fn two_pbxs_on_one_stream_keep_separate_zones() {
    let mut clock = CelClock::default();
    // Tashkent and Kathmandu, told apart by the system name in the unique ID.
    let born = clock.read_time("2026-11-20 10:08:37", "tas-1795151317.1", true);
    assert_eq!(seconds(born), Some(1_795_151_317));
    let born = clock.read_time("2026-11-20 10:53:37", "ktm-1795151317.1", true);
    assert_eq!(seconds(born), Some(1_795_151_317));
    for (text, id) in [
        ("2026-11-20 10:38:37", "tas-1795151317.1"),
        ("2026-11-20 11:23:37", "ktm-1795151317.1"),
    ] {
        assert_eq!(
            seconds(clock.read_time(text, id, false)),
            Some(1_795_153_117)
        );
    }
    // The server given in the frame also identifies a PBX.
    clock.set_server(Some("b"));
    let born = clock.read_time("2026-11-20 05:08:37", "1795151317.1", true);
    assert_eq!(seconds(born), Some(1_795_151_317));
    clock.set_server(Some("a"));
    let born = clock.read_time("2026-11-20 08:08:37", "1795151317.1", true);
    assert_eq!(seconds(born), Some(1_795_151_317));
    clock.set_server(Some("b"));
    let later = clock.read_time("2026-11-20 05:38:37", "1795151317.1", false);
    assert_eq!(seconds(later), Some(1_795_153_117));
}

#[test]
fn row_from_mid_call_gets_its_zone_from_its_unique_id() {
    let mut clock = CelClock::default();
    let middle = clock.read_time("2026-11-20 10:18:37", "1795151317.146", false);
    assert_eq!(seconds(middle), Some(1_795_151_917));
    assert_eq!(clock.read_time("2026-11-20 10:18:37", "torn", false), None);
}

#[test]
fn ids_without_a_plausible_epoch_set_no_utc_offset() {
    let mut clock = CelClock::new(None, false);
    assert_eq!(
        clock.read_time("2026-11-20 10:18:37", "1375994780.1", true),
        None
    );
    let mut of_a_file = CelClock::new(None, true);
    let at = of_a_file.read_time("2026-11-20 10:18:37", "1375994780.1", true);
    assert_eq!(seconds(at), Some(1_795_169_917));
    // The row is 13 minutes newer than its ID. The nearest offset, +05:15, is two minutes off, so
    // it isn't learned. Instead, the offset is rounded down to +05:00, as for a row from mid-call.
    let odd = of_a_file.read_time("2026-11-20 10:21:37", "1795151317.146", true);
    assert_eq!(seconds(odd), Some(1_795_152_097));
}

#[test]
fn unique_id_resolves_the_order_of_day_and_month() {
    let mut clock = CelClock::default();
    for text in ["12/11/2026 10:08:37", "11/12/2026 10:08:37"] {
        // 2026-11-12 05:08:37 UTC
        let at = clock.read_time(text, "1794460117.1", true);
        assert_eq!(seconds(at), Some(1_794_460_117), "{text}");
    }
}

#[test]
fn repeated_hour_is_resolved_by_the_unique_id() {
    let zone = TimeZone::get("Europe/Berlin").expect("a zone");
    let mut clock = CelClock::new(Some(zone), false);
    // 02:30 on 2026-10-25 in Berlin is 00:30 UTC, and then 01:30 UTC as well.
    let (first, second) = (1_792_888_200, 1_792_891_800);
    for epoch in [first, second] {
        let id = format!("{}.1", epoch - 5);
        let at = clock.read_time("2026-10-25 02:30:00", &id, false);
        assert_eq!(seconds(at), Some(epoch));
    }
}

#[test]
fn call_through_repeated_hour_gets_increasing_times() {
    let zone = TimeZone::get("Europe/Berlin").expect("a zone");
    for zone in [Some(zone), None] {
        let given = zone.is_some();
        let mut clock = CelClock::new(zone, false);
        let id = "1792889400.1"; // 00:50 UTC, 02:50 for the first time
        for (text, starts, epoch) in [
            ("2026-10-25 02:50:00", true, 1_792_889_400),
            ("2026-10-25 02:58:00", false, 1_792_889_880),
            ("2026-10-25 02:05:00", false, 1_792_890_300),
        ] {
            let at = clock.read_time(text, id, starts);
            assert_eq!(seconds(at), Some(epoch), "{text}");
        }
        if given {
            // By local time, this is later than the channel's creation, but it comes after 02:05.
            let at = clock.read_time("2026-10-25 02:55:00", id, false);
            assert_eq!(seconds(at), Some(1_792_893_300));
        }
    }
}
