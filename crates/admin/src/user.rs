//! The names of Unix users, to show who made a request.

use std::path::Path;

/// The system's file of users. Users of a directory service are not in it, and are shown by number.
const USERS: &str = "/etc/passwd";
/// Maximum size of the system's file of users. A larger file is something else.
const USERS_BYTES_MAX: u64 = 1 << 20;

/// Returns the name of the user with this id, or text such as `uid 1001` if the id has no name.
pub fn name_of(uid: u32) -> String {
    find_name(uid).unwrap_or_else(|| format!("uid {uid}"))
}

/// Returns the name of the user with this id. Returns `None` if the system's file does not have it.
pub fn find_name(uid: u32) -> Option<String> {
    find_name_in(uid, Path::new(USERS))
}

/// Returns the name of the user that this process runs as.
pub fn own_name() -> String {
    name_of(rustix::process::geteuid().as_raw())
}

fn find_name_in(uid: u32, users: &Path) -> Option<String> {
    if users.metadata().ok()?.len() > USERS_BYTES_MAX {
        return None;
    }
    let text = std::fs::read_to_string(users).ok()?;
    for line in text.lines() {
        let fields: Vec<&str> = line.split(':').collect();
        if let [name, _, id, ..] = fields[..]
            && id.parse() == Ok(uid)
            && !name.is_empty()
        {
            return Some(name.to_owned());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_without_a_name_is_not_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let users = folder.path().join("passwd");
        assert_eq!(find_name_in(7, &users), None, "no file");
        let text = "root:x:0:0::/root:/bin/sh\nana:x:1001:1001::/home/ana:/bin/sh\n::7:\nbad\n";
        std::fs::write(&users, text).expect("written");
        assert_eq!(find_name_in(1001, &users).as_deref(), Some("ana"));
        assert_eq!(find_name_in(0, &users).as_deref(), Some("root"));
        assert_eq!(find_name_in(7, &users), None);
    }
}
