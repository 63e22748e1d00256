//! The names of Unix users, for what is told of whoever did something.

use std::path::Path;

/// The system's file of users. Users of a directory service are not in it, and are shown by number.
const USERS: &str = "/etc/passwd";
/// A file that is larger is none of users.
const USERS_BYTES_MAX: u64 = 1 << 20;

/// The name of this user; `uid 1001` where there is none.
pub fn name_of(uid: u32) -> String {
    named(uid, Path::new(USERS))
}

/// The name of the user that this process runs as.
pub fn own_name() -> String {
    name_of(rustix::process::geteuid().as_raw())
}

fn named(uid: u32, users: &Path) -> String {
    let small = users.metadata().is_ok_and(|it| it.len() <= USERS_BYTES_MAX);
    let text = small.then(|| std::fs::read_to_string(users).ok());
    let text = text.flatten().unwrap_or_default();
    let mut names = text.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let (name, _, id) = (fields.next()?, fields.next()?, fields.next()?);
        (id.parse() == Ok(uid) && !name.is_empty()).then_some(name)
    });
    let name = names.next().map(str::to_owned);
    name.unwrap_or_else(|| format!("uid {uid}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_without_a_name_is_told_by_number() {
        let folder = tempfile::tempdir().expect("a folder");
        let users = folder.path().join("passwd");
        assert_eq!(named(7, &users), "uid 7", "no file");
        let text = "root:x:0:0::/root:/bin/sh\nana:x:1001:1001::/home/ana:/bin/sh\n::7:\nbad\n";
        std::fs::write(&users, text).expect("written");
        assert_eq!(named(1001, &users), "ana");
        assert_eq!(named(0, &users), "root");
        assert_eq!(named(7, &users), "uid 7");
    }
}
