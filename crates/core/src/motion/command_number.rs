//! Numbering of an object's commands: by epochs, which only the server starts, and by counts within an epoch.

/// Number of a command; later commands have greater numbers. Numbers are valid only within one incarnation of the
/// server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommandNumber {
    /// Epoch. Only the server starts a new one: when it overrules the client that controls an object, places the object
    /// in another state, transfers the control, or spawns an object after another one was removed. Commands of an
    /// earlier epoch that are still in flight are void.
    pub epoch: u32,
    /// Number of the command in the epoch; 0 until the first command after the spawn of the object.
    pub count: u32,
}

impl CommandNumber {
    /// Returns the number of the spawn of an object in `epoch`.
    pub(super) const fn first_in_epoch(epoch: u32) -> Self {
        Self { epoch, count: 0 }
    }

    /// Returns the number of the next command. If the counts of an epoch run out, the server continues in the next
    /// epoch; no client issues as many commands.
    pub(super) fn next(self) -> Self {
        self.count.checked_add(1).map_or(self.after_server_decision(), |count| Self { count, ..self })
    }

    /// Returns the number of a server decision that overrules the client that controls the object, or places the
    /// object. It begins the next epoch, because that client may just have issued the next number.
    pub(super) fn after_server_decision(self) -> Self {
        Self { epoch: self.epoch.saturating_add(1), count: 1 }
    }

    /// Returns the number of a transfer of control, in the next epoch. The count stays 0 if the object was never
    /// commanded.
    pub(super) fn after_ownership_transfer(self) -> Self {
        Self { count: self.count.min(1), ..self.after_server_decision() }
    }

    /// Returns whether the object has not been commanded since it was spawned.
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
