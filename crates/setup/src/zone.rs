//! The time zone and the clock of the PBX.

/// Largest tolerated difference of the PBX's clock, in seconds. It is not 0, because an answer
/// takes time.
const OFF_SECONDS_MAX: i64 = 30;

/// Countries with one time zone, which is proposed if the PBX's zone need not be this machine's.
const ZONES: [(&str, &str); 8] = [
    ("UZ", "Asia/Tashkent"),
    ("TJ", "Asia/Dushanbe"),
    ("KG", "Asia/Bishkek"),
    ("TM", "Asia/Ashgabat"),
    ("KZ", "Asia/Almaty"),
    ("AZ", "Asia/Baku"),
    ("AM", "Asia/Yerevan"),
    ("GE", "Asia/Tbilisi"),
];

/// Returns the zone to propose, and the reason. `here` is this machine's zone, if it has one.
/// `local` means that the PBX runs on this machine.
pub fn propose(here: Option<&str>, local: bool, country: Option<&str>) -> (String, String) {
    let named = here.filter(|zone| !["UTC", "Etc/UTC", "Etc/Unknown"].contains(zone));
    let of_country = country.and_then(|country| {
        let mut zones = ZONES.iter();
        zones.find(|(code, _)| country.eq_ignore_ascii_case(code))
    });
    match (named, of_country) {
        (Some(zone), _) if local => (
            zone.to_owned(),
            "this machine's, because the PBX runs on it".to_owned(),
        ),
        (_, Some((code, zone))) => ((*zone).to_owned(), format!("the zone of {code}")),
        (Some(zone), None) => (
            zone.to_owned(),
            "this machine's; the PBX does not report its own".to_owned(),
        ),
        (None, None) => ("UTC".to_owned(), "no other zone is known".to_owned()),
    }
}

/// Compares the PBX's clock with ours, both in epoch seconds, and returns the result as a sentence.
pub fn clock(pbx: Option<i64>, ours: i64) -> String {
    match pbx {
        None => "the PBX's clock is unknown, because its events have no timestamps".to_owned(),
        Some(pbx) if (pbx - ours).abs() <= OFF_SECONDS_MAX => {
            "the PBX's clock agrees with this machine's".to_owned()
        }
        Some(pbx) => {
            let apart = (pbx - ours).abs();
            let way = if pbx > ours { "ahead of" } else { "behind" };
            format!(
                "the PBX's clock is {apart} s {way} this machine's: set both by NTP, because calls \
                 are journaled with the PBX's time"
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proposed_zone(here: Option<&str>, local: bool, country: Option<&str>) -> String {
        propose(here, local, country).0
    }

    #[test]
    fn local_pbx_gets_machine_zone_and_remote_pbx_country_zone() {
        assert_eq!(
            proposed_zone(Some("Europe/Moscow"), true, Some("UZ")),
            "Europe/Moscow"
        );
        assert_eq!(
            proposed_zone(Some("UTC"), true, Some("uz")),
            "Asia/Tashkent"
        );
        assert_eq!(
            proposed_zone(Some("Europe/Moscow"), false, Some("UZ")),
            "Asia/Tashkent"
        );
        assert_eq!(
            proposed_zone(Some("Europe/Moscow"), false, Some("RU")),
            "Europe/Moscow"
        );
        assert_eq!(proposed_zone(None, true, None), "UTC");
    }

    #[test]
    fn clock_difference_is_reported_in_seconds() {
        assert!(clock(Some(100), 110).contains("agrees"));
        assert!(clock(Some(100), 200).contains("100 s behind this machine"));
        assert!(clock(Some(300), 200).contains("100 s ahead"));
        assert!(clock(None, 200).contains("have no timestamps"));
    }
}
