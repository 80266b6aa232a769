//! The last player left at a site: when it plays on alone, who is told, and how two sites that both did agree on one list again.

use coplay::id::SiteId;
use coplay::session::{Session, State};
use coplay::time::Instant;

use super::PlayerRunner;
use crate::clock;
use crate::runner::{Frontend, RunnerEvent};

/// What a site does when every other player is silent, and it cannot drop them because it is no quorum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AlonePolicy {
    /// Waits, and ends after [`GIVE_UP`](super::GIVE_UP_FACTOR) times `drop_after`.
    #[default]
    Wait,
    /// Waits until the person in front of it decides by [`Command::GoOnAlone`](crate::drive::UserCommand::ContinueAlone).
    Ask,
    /// Plays on alone as soon as `drop_after` has passed.
    Continue,
}

impl PlayerRunner {
    /// Whether the person in front of this site can decide to play on alone now.
    pub(super) fn can_continue_alone(&self, now: Instant) -> bool {
        self.session.as_ref().is_some_and(|session| session.can_continue_alone(now))
    }

    pub(super) fn continue_alone(&mut self) {
        if let Some(session) = &mut self.session {
            session.continue_alone(clock::now());
        }
    }

    /// Plays on alone where nobody needs to be asked.
    pub(super) fn continue_alone_if_automatic(&mut self, now: Instant) {
        if self.options.alone_policy == AlonePolicy::Continue
            && self.options.drop_timeout.is_some()
            && self.can_continue_alone(now)
        {
            self.continue_alone();
        }
    }

    /// Notices when the last other player is gone. The front end has heard of all events by now.
    pub(super) fn detect_alone(&mut self) {
        let plays = |session: &&Session| matches!(session.state(), State::Running | State::Frozen(_));
        let Some(session) = self.session.as_ref().filter(plays).filter(|_| !self.is_leaving) else { return };
        let alone = session.players().iter().count() == 1;
        self.is_alone_event_pending |= alone && self.had_other_players;
        self.had_other_players = !alone;
    }

    /// Tells the front end that this site plays on alone. By now it knows the party as it is, and so what leads in.
    pub(super) fn notify_alone(&mut self, front: &mut dyn Frontend) {
        if std::mem::take(&mut self.is_alone_event_pending) {
            front.on_event(RunnerEvent::PlayingAlone);
        }
    }

    /// Another site went on alone, too, and its game is kept: it is there, and keeps the list from now on.
    pub(super) fn on_split_brain_resolved(&mut self, site: SiteId) {
        self.set_present(site, true);
        if let Some(member) = self.lobby.members.iter_mut().find(|member| member.site == site.number()) {
            member.is_present = true;
        }
    }
}
