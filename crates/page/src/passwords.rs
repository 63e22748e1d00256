//! The password file, which lists the users who can log in by name. Each line has the form
//! `NAME:ROLE:HASH`, where the hash is argon2id in PHC format, as created by `callbridge page
//! password`.

use argon2::password_hash::PasswordHasher as _;
use argon2::password_hash::phc::PasswordHash;
use argon2::{Algorithm, Argon2, Block, Params, Version};
use callbridge_admin::PageRole;
use ring::digest::{SHA256, digest};
use std::collections::BTreeSet;
use std::fmt;
use subtle::ConstantTimeEq as _;

/// Maximum number of users. The page is for administrators, and there are few of them.
const PEOPLE_MAX: usize = 1000;
/// Maximum length of a name in characters.
const NAME_CHARS_MAX: usize = 64;
/// Maximum length of a password in bytes, which limits how much work hashing is.
pub const PASSWORD_BYTES_MAX: usize = 1024;
/// Maximum amount of memory in KiB that a hash may require, to protect the machine.
const MEMORY_KIB_MAX: u32 = 256 * 1024;
/// Maximum number of passes over the memory for one hash.
const PASSES_MAX: u32 = 16;

#[derive(Clone)]
struct Person {
    name: String,
    role: PageRole,
    hash: PasswordHash,
}

/// The users in the password file, with their roles and hashes.
#[derive(Clone, Default)]
pub struct Passwords(Vec<Person>);

impl fmt::Debug for Passwords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.0.iter().map(|person| &person.name);
        f.debug_list().entries(names).finish()
    }
}

/// Why a password wasn't hashed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnfitPassword {
    /// The password has fewer than 10 characters.
    #[error("a password of at least 10 characters is expected")]
    Short,
    /// The password is longer than the page accepts.
    #[error("a password of at most {PASSWORD_BYTES_MAX} bytes is expected")]
    Long,
    /// The name isn't valid in a line of the file.
    #[error(
        "a name of 1 to {NAME_CHARS_MAX} letters, digits, `-`, `_`, `.` or `@` is expected: it is \
         written in the file and next to the user's actions"
    )]
    Name,
    /// The hashing library's error message.
    #[error("cannot hash the password: {0}")]
    Library(String),
}

/// Creates the password file's line for this user.
///
/// # Errors
/// Returns an [`UnfitPassword`] if the name or password isn't valid.
pub fn hash_password(name: &str, role: PageRole, password: &str) -> Result<String, UnfitPassword> {
    if !is_name(name) {
        return Err(UnfitPassword::Name);
    }
    if password.chars().count() < 10 {
        return Err(UnfitPassword::Short);
    }
    if password.len() > PASSWORD_BYTES_MAX {
        return Err(UnfitPassword::Long);
    }
    let hash = Argon2::default()
        .hash_password(password.as_bytes())
        .map_err(|error| UnfitPassword::Library(error.to_string()))?;
    Ok(format!("{name}:{}:{hash}", role.word()))
}

fn is_name(name: &str) -> bool {
    (1..=NAME_CHARS_MAX).contains(&name.chars().count())
        && name
            .chars()
            .all(|c| c.is_alphanumeric() || "-_.@".contains(c))
}

impl Passwords {
    /// Parses the file's text, in which every line must be valid. Empty lines and lines starting
    /// with `#` are skipped.
    ///
    /// # Errors
    /// Returns the first error found by [`Passwords::read`].
    pub fn parse(text: &str) -> Result<Self, String> {
        let (people, errors) = Self::read(text);
        match errors.into_iter().next() {
            Some(error) => Err(error),
            None => Ok(people),
        }
    }

    /// Reads the users in the valid lines, along with an error for each invalid line, consisting of
    /// the line's number, what's wrong, and the fix. An error never shows the line itself, because
    /// it may contain a password. If two lines have the same name, that user can't log in, because
    /// there's no telling which line is right.
    pub fn read(text: &str) -> (Self, Vec<String>) {
        let mut people: Vec<Person> = Vec::new();
        let mut names = BTreeSet::new();
        let mut repeated = BTreeSet::new();
        let mut errors = Vec::new();
        for (line, number) in text.lines().zip(1..) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let person = match person(line) {
                Ok(person) => person,
                Err(reason) => {
                    errors.push(format!("line {number} {reason}"));
                    continue;
                }
            };
            if !names.insert(person.name.clone()) {
                let reason = "repeats the name of an earlier line: remove one of the two lines";
                errors.push(format!("line {number} {reason}"));
                repeated.insert(person.name);
            } else if people.len() == PEOPLE_MAX {
                let reason = "is more than the 1000 people that a file can name: remove some lines";
                errors.push(format!("line {number} {reason}"));
            } else {
                people.push(person);
            }
        }
        people.retain(|person| !repeated.contains(&person.name));
        (Self(people), errors)
    }

    /// Returns `true` if the file has no users, so that sessions can only be opened using links.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the role of the user with this name and password. An unknown name takes just as long
    /// as a known one. The password is hashed in `memory`. Since hashing takes a tenth of a second
    /// or more, this should be called on a thread that may block.
    pub(crate) fn role(
        &self,
        name: &str,
        password: &str,
        memory: &mut HashMemory,
    ) -> Option<PageRole> {
        let person = self.0.iter().find(|person| person.name == name);
        // For an unknown name, the password is compared with another user's hash and rejected.
        let against = person.or(self.0.first())?;
        if !verify(&against.hash, password, memory) {
            return None;
        }
        person.map(|person| person.role)
    }

    /// Returns a short hash of a user's line, which changes with the role and the password.
    pub(crate) fn print(&self, name: &str) -> Option<String> {
        let person = self.0.iter().find(|person| person.name == name)?;
        let line = format!("{}:{}:{}", person.name, person.role.word(), person.hash);
        let hash = digest(&SHA256, line.as_bytes());
        Some(crate::random::hex(&hash.as_ref()[..8]))
    }
}

fn person(line: &str) -> Result<Person, String> {
    const HASH: &str = "has no argon2id hash: use the line that `callbridge page password NAME \
                        ROLE` prints";
    let mut parts = line.splitn(3, ':');
    let (Some(name), Some(role), Some(hash)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(
            "is not of the form NAME:ROLE:HASH: use the line that `callbridge page password NAME \
             ROLE` prints"
                .to_owned(),
        );
    };
    if !is_name(name) {
        return Err(format!("has no valid name: {}", UnfitPassword::Name));
    }
    // The text may be a password in the wrong place, so it isn't shown.
    let unknown = "has an unknown role: `admin` or `view` is expected";
    let role = role.parse().map_err(|_| unknown.to_owned())?;
    let hash = PasswordHash::new(hash).map_err(|_| HASH.to_owned())?;
    let params = Params::try_from(&hash).map_err(|_| HASH.to_owned())?;
    if hash.algorithm.as_str() != "argon2id" || hash.hash.is_none() || hash.salt.is_none() {
        return Err(HASH.to_owned());
    }
    if params.m_cost() > MEMORY_KIB_MAX || params.t_cost() > PASSES_MAX {
        return Err(format!(
            "has a hash that costs too much: at most {MEMORY_KIB_MAX} KiB and {PASSES_MAX} passes \
             are allowed"
        ));
    }
    let name = name.to_owned();
    Ok(Person { name, role, hash })
}

/// The memory in which passwords are hashed, which is 19 MiB with the usual parameters. It's
/// reused, because an allocator holds on to much of any memory that's often allocated and freed.
#[derive(Default)]
pub(crate) struct HashMemory {
    blocks: Vec<Block>,
    /// Number of hashes computed in this memory.
    pub(crate) uses: u64,
}

impl HashMemory {
    fn blocks(&mut self, count: usize) -> &mut [Block] {
        self.uses += 1;
        if self.blocks.len() < count {
            self.blocks = vec![Block::new(); count];
        }
        &mut self.blocks[..count]
    }

    /// Frees the memory if it has still been used `uses` times, which means that it hasn't been
    /// used since.
    pub(crate) fn give_back(&mut self, uses: u64) {
        if self.uses == uses {
            self.blocks = Vec::new();
        }
    }
}

fn verify(hash: &PasswordHash, password: &str, memory: &mut HashMemory) -> bool {
    let (Some(salt), Some(expected)) = (&hash.salt, &hash.hash) else {
        return false;
    };
    let Ok(params) = Params::try_from(hash) else {
        return false;
    };
    let Ok(version) = hash.version.map(Version::try_from).transpose() else {
        return false;
    };
    let mut computed = vec![0; expected.len()];
    let blocks = memory.blocks(params.block_count());
    let hasher = Argon2::new(Algorithm::Argon2id, version.unwrap_or_default(), params);
    let password = password.as_bytes();
    let made = hasher.hash_password_into_with_memory(password, salt, &mut computed, blocks);
    made.is_ok() && computed.ct_eq(expected.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(file: &Passwords, name: &str, password: &str) -> Option<PageRole> {
        file.role(name, password, &mut HashMemory::default())
    }

    #[test]
    fn hash_memory_is_reused_and_freed_unless_used_since() {
        let good = hash_password("anna", PageRole::Admin, "correct horse").expect("a line");
        let file = Passwords::parse(&good).expect("a file");
        let mut memory = HashMemory::default();
        for _ in 0..2 {
            let role = file.role("anna", "correct horse", &mut memory);
            assert_eq!(role, Some(PageRole::Admin));
            assert_eq!(file.role("anna", "battery staple", &mut memory), None);
        }
        let kib = memory.blocks.len();
        assert_eq!(kib, Params::DEFAULT.block_count());
        memory.give_back(memory.uses - 1);
        assert_eq!(memory.blocks.len(), kib, "used since");
        memory.give_back(memory.uses);
        assert!(memory.blocks.is_empty());
    }

    /// Creates a line whose hash is cheap to verify.
    fn line(name: &str, role: &str, password: &str) -> String {
        let params = Params::new(8, 1, 1, None).expect("parameters");
        let hash = Argon2::from(params).hash_password(password.as_bytes());
        format!("{name}:{role}:{}", hash.expect("a hash"))
    }

    #[test]
    fn user_role_needs_listed_name_and_matching_password() {
        let text = format!(
            "# people\n\n{}\n{}\n",
            line("anna", "admin", "correct horse"),
            line("bek", "view", "battery staple")
        );
        let file = Passwords::parse(&text).expect("a file");
        assert_eq!(role(&file, "anna", "correct horse"), Some(PageRole::Admin));
        assert_eq!(role(&file, "bek", "battery staple"), Some(PageRole::View));
        assert_eq!(role(&file, "anna", "battery staple"), None);
        assert_eq!(role(&file, "nobody", "correct horse"), None);
        assert_eq!(role(&file, "anna", ""), None);
        assert_eq!(role(&Passwords::default(), "anna", ""), None);
        assert!(!format!("{file:?}").contains("argon2"), "{file:?}");
    }

    #[test]
    fn invalid_password_line_is_reported_by_number_only() {
        let good = line("anna", "admin", "correct horse");
        let dear = good.replace("m=8", "m=999999");
        for (bad, expected) in [
            ("anna", "NAME:ROLE:HASH"),
            ("anna:hunter22222", "NAME:ROLE:HASH"),
            ("anna:root:hunter22222", "role"),
            ("anna:admin:hunter22222", "argon2id"),
            ("an na:admin:hunter22222", "name"),
            (&good.replace("argon2id", "argon2d"), "argon2id"),
            (&dear, "costs too much"),
        ] {
            let refused = Passwords::parse(&format!("#\n{bad}\n")).expect_err(bad);
            assert!(refused.starts_with("line 2 "), "{bad}");
            let message = refused.to_string();
            assert!(message.contains(expected), "{message}");
            assert!(!message.contains("hunter"), "{message}");
        }
        let twice = Passwords::parse(&format!("{good}\n{good}\n")).expect_err("twice");
        assert!(twice.starts_with("line 2 "), "{twice}");
    }

    #[test]
    fn users_of_valid_lines_remain_when_other_lines_are_invalid() {
        let anna = line("anna", "admin", "correct horse");
        let bek = line("bek", "view", "battery staple");
        let text = format!("{anna}\nbroken:hunter22222\n{bek}\n{bek}\n");
        let (people, faults) = Passwords::read(&text);
        assert!(people.print("anna").is_some());
        assert_eq!(people.print("bek"), None, "two lines of one name");
        assert_eq!(faults.len(), 2, "{faults:?}");
        assert!(faults[0].starts_with("line 2 ") && faults[1].starts_with("line 4 "));
        assert!(!faults.concat().contains("hunter"), "{faults:?}");
    }

    fn print_of_anna(text: &str) -> Option<String> {
        Passwords::parse(text).expect("a file").print("anna")
    }

    #[test]
    fn line_fingerprint_changes_with_role_or_hash() {
        let one = line("anna", "admin", "correct horse");
        let print = print_of_anna(&one);
        assert_eq!(print, print_of_anna(&one));
        assert_ne!(print, print_of_anna(&one.replace(":admin:", ":view:")));
        let rehashed = line("anna", "admin", "correct horse");
        assert_ne!(print, print_of_anna(&rehashed));
        assert_eq!(Passwords::default().print("anna"), None);
    }

    #[test]
    fn unfit_name_or_password_is_not_hashed() {
        let long = "x".repeat(2000);
        for (name, password, reason) in [
            ("a:b", "correct horse", UnfitPassword::Name),
            ("", "correct horse", UnfitPassword::Name),
            ("anna", "123456789", UnfitPassword::Short),
            ("anna", long.as_str(), UnfitPassword::Long),
        ] {
            let refused = hash_password(name, PageRole::View, password).expect_err("refused");
            assert_eq!(refused, reason, "{name}");
        }
    }

    #[test]
    fn hashed_password_line_can_be_read_again() {
        let line = hash_password("anna", PageRole::Admin, "correct horse").expect("a line");
        assert!(line.starts_with("anna:admin:$argon2id$v=19$"), "{line}");
        let file = Passwords::parse(&line).expect("a file");
        assert_eq!(role(&file, "anna", "correct horse"), Some(PageRole::Admin));
    }
}
