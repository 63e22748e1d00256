//! Exit codes of commands that fail, as in sysexits.

/// The exit codes that users' scripts rely on.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::FromRepr, strum::VariantArray,
)]
#[repr(u8)]
pub enum Code {
    /// An error that has no other code, or counts of calls in `demo` that do not add up.
    Failed = 1,
    /// `status --exit-code`: nothing reaches the CRM, or no source is up.
    Down = 2,
    Usage = 64,
    /// An input file does not have the right form.
    Input = 65,
    NoInput = 66,
    /// A PBX, broker, CRM, or daemon cannot be reached.
    Unreachable = 69,
    /// The state, a socket, or an output file cannot be written.
    CannotWrite = 73,
    /// Another process holds the lock of the state folder.
    Locked = 75,
    /// A token or a grant is missing.
    NoPermission = 77,
    /// The state folder or the configuration cannot be used.
    Configuration = 78,
    /// A person ended the command early (Ctrl-C).
    Left = 130,
}

impl Code {
    /// All codes in ascending order.
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Returns the code of this number. [`Code::Failed`] for an unknown number.
    pub fn of_number(number: u8) -> Self {
        Self::from_repr(number).unwrap_or(Self::Failed)
    }
}

/// An error that has an exit code.
pub trait ExitCode: std::error::Error + Send + Sync + 'static {
    fn exit_code(&self) -> Code;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_have_fixed_numbers() {
        let numbers: Vec<u8> = Code::ALL.iter().map(|code| code.number()).collect();
        assert_eq!(numbers, [1, 2, 64, 65, 66, 69, 73, 75, 77, 78, 130]);
        assert_eq!(Code::of_number(77), Code::NoPermission);
        assert_eq!(Code::of_number(3), Code::Failed);
    }
}
