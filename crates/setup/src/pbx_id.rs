//! The PBX's id that `init` proposes.

/// Longest id that `--pbx-id` accepts, in characters.
const CHARACTERS_MAX: usize = 64;

/// Makes an id from this machine's host name, without its domain. Returns `otherwise` for
/// `localhost` and for a name that has no letters or digits.
pub fn from_host_name(host: &str, otherwise: &str) -> String {
    let first_label = host.split('.').next().unwrap_or_default();
    let id: String = first_label
        .to_ascii_lowercase()
        .chars()
        .map(|c| if is_allowed(c) { c } else { '-' })
        .take(CHARACTERS_MAX)
        .collect();
    let id = id.trim_matches('-');
    if id.is_empty() || id == "localhost" {
        return otherwise.to_owned();
    }
    id.to_owned()
}

fn is_allowed(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_name_becomes_an_id_without_its_domain() {
        for (host, id) in [
            ("pbx-tashkent.example.com", "pbx-tashkent"),
            ("FreePBX", "freepbx"),
            ("АТС-5", "5"),
            ("my pbx", "my-pbx"),
        ] {
            assert_eq!(from_host_name(host, "pbx1"), id);
        }
        let long = "a".repeat(100);
        assert_eq!(from_host_name(&long, "pbx1").len(), CHARACTERS_MAX);
    }

    #[test]
    fn unusable_host_name_is_replaced_by_the_instance_name() {
        for host in ["", "localhost", "localhost.localdomain", "АТС", "--"] {
            assert_eq!(from_host_name(host, "pbx1"), "pbx1");
        }
    }
}
