//! How the commands of an object are numbered.

/// The number of a command: later ones are greater. Numbers belong to one run of the server, and say nothing in another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommandNumber {
    /// Only the server begins another one: when it decides about an object that a client commands, and when there is another
    /// object that is called the same. What is under way of an epoch before does not count.
    pub epoch: u32,
    /// Commands in that epoch. With none it is where the object appeared, and nobody has commanded it yet.
    pub count: u32,
}

impl CommandNumber {
    /// Where an object appears.
    pub(super) const fn first_in_epoch(epoch: u32) -> Self {
        Self { epoch, count: 0 }
    }

    /// The command after this one. Nobody gives as many as there are numbers; a server's own would go on in another epoch.
    pub(super) fn next(self) -> Self {
        self.count.checked_add(1).map_or(self.after_server_decision(), |count| Self { count, ..self })
    }

    /// The server decides otherwise than whoever commands the object, who may have given the next command just now.
    pub(super) fn after_server_decision(self) -> Self {
        Self { epoch: self.epoch.saturating_add(1), count: 1 }
    }

    /// Somebody else commands the object from now on. What nobody has commanded yet still nobody has.
    pub(super) fn after_ownership_transfer(self) -> Self {
        Self { count: self.count.min(1), ..self.after_server_decision() }
    }

    /// Whether the object has just appeared, and nobody has commanded it.
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
            let given = CommandNumber { count, ..number };
            assert!(
                given.after_server_decision() > CommandNumber { count: u32::MAX, ..number }
                    && !given.after_server_decision().is_first()
            );
            assert!(given.next() > given);
            assert_eq!(given.after_ownership_transfer().is_first(), given.is_first());
        }
        let last = CommandNumber { epoch: u32::MAX, count: u32::MAX };
        assert!(last.next() <= last, "it ends without a panic");
    }
}
