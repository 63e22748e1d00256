//! The clocks on the walls of PBXs: one stream may tell of several, each in a zone of its own.

/// More PBXs than any one stream tells of; past it the last one's place is taken.
const PBXES_MAX: usize = 64;

/// Facts on each PBX's clock, and the PBX that the record at hand is of.
#[derive(Clone, Debug, Default)]
pub(crate) struct WallClocks<T> {
    /// By the server, and the system name that stands before its unique ids.
    known: Vec<([String; 2], T)>,
    at_hand: usize,
}

impl<T: Default> WallClocks<T> {
    /// Turns to the PBX whose server has told of the channel `uniqueid`.
    pub(crate) fn turn_to(&mut self, server: &str, uniqueid: &str) {
        let (system, _) = uniqueid.rsplit_once('-').unwrap_or_default();
        let names = [server, system];
        let known = self.known.iter().position(|(known, _)| *known == names);
        self.at_hand = known.unwrap_or_else(|| {
            self.known.truncate(PBXES_MAX - 1);
            self.known.push((names.map(str::to_owned), T::default()));
            self.known.len() - 1
        });
    }

    /// Returns the facts of the PBX at hand; `None` before the first record.
    pub(crate) fn at_hand(&mut self) -> Option<&mut T> {
        self.known.get_mut(self.at_hand).map(|(_, clock)| clock)
    }
}
