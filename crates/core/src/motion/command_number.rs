//! Numbering of an object's commands.

/// Number of a command; later commands have greater numbers. Numbers are valid only within one incarnation of the
/// server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommandNumber {
    /// Epoch. Only the server starts a new one: when it overrules the client that controls an object, and when it
    /// reuses an object id. Commands of an earlier epoch that are still in flight are void.
    pub epoch: u32,
    /// Number of commands in the epoch. 0 is the spawn of the object, before any command.
    pub count: u32,
}

impl CommandNumber {
    /// Number of an object's spawn.
    pub(super) const fn first_in_epoch(epoch: u32) -> Self {
        Self { epoch, count: 0 }
    }

    /// Number of the next command. A server's own commands continue in the next epoch if the numbers run out; no client
    /// issues as many.
    pub(super) fn next(self) -> Self {
        self.count.checked_add(1).map_or(self.after_server_decision(), |count| Self { count, ..self })
    }

    /// Number of a server decision that overrules the client that controls the object. That client may just have issued
    /// the next number.
    pub(super) fn after_server_decision(self) -> Self {
        Self { epoch: self.epoch.saturating_add(1), count: 1 }
    }

    /// Number of a transfer of control. An object that was never commanded stays that way.
    pub(super) fn after_ownership_transfer(self) -> Self {
        Self { count: self.count.min(1), ..self.after_server_decision() }
    }

    /// Whether the object has just spawned and was never commanded.
    pub(super) const fn is_first(self) -> bool {
        self.count == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_decision_is_numbered_after_all_commands_of_the_owner() {
        let number = CommandNumber { epoch: 3, count: 7 };
        assert_eq!(number.next(), CommandNumber { epoch: 3, count: 8 });
        for count in [0, 1, u32::MAX] {
            let issued = CommandNumber { count, ..number };
            assert!(
                issued.after_server_decision() > CommandNumber { count: u32::MAX, ..number }
                    && !issued.after_server_decision().is_first()
            );
            assert!(issued.next() > issued);
            assert_eq!(issued.after_ownership_transfer().is_first(), issued.is_first());
        }
        let last = CommandNumber { epoch: u32::MAX, count: u32::MAX };
        assert!(last.next() <= last, "numbers must run out without a panic");
    }
}
