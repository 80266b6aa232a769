//! The last remaining player: when it plays on alone, which event its frontend gets, and how the rosters are reunited
//! after two sites have both played on alone.

use coplay::id::SiteId;
use coplay::session::{Session, State};
use coplay::time::Instant;

use super::PlayerRunner;
use crate::clock;
use crate::runner::{Frontend, RunnerEvent};

/// Behaviour of a site when all other players are silent, and the site cannot drop them because it alone is no quorum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AlonePolicy {
    /// Waits, and ends the run after [`GIVE_UP_FACTOR`](super::GIVE_UP_FACTOR) times `drop_timeout`; without
    /// `drop_timeout` it waits forever.
    #[default]
    Wait,
    /// Waits until the user decides by [`UserCommand::ContinueAlone`](crate::runner::UserCommand::ContinueAlone).
    Ask,
    /// Plays on alone as soon as `drop_timeout` has passed; without `drop_timeout` it waits.
    Continue,
}

impl PlayerRunner {
    /// Returns whether the user can decide to play on alone now.
    pub(super) fn can_continue_alone(&self, now: Instant) -> bool {
        self.session.as_ref().is_some_and(|session| session.can_continue_alone(now))
    }

    pub(super) fn continue_alone(&mut self) {
        if let Some(session) = &mut self.session {
            session.continue_alone(clock::now());
        }
    }

    /// Plays on alone if that is possible now and the policy is [`AlonePolicy::Continue`].
    pub(super) fn continue_alone_if_automatic(&mut self, now: Instant) {
        if self.options.alone_policy == AlonePolicy::Continue
            && self.options.drop_timeout.is_some()
            && self.can_continue_alone(now)
        {
            self.continue_alone();
        }
    }

    /// Detects that the last other player is gone. Called after the frontend got all session events.
    pub(super) fn detect_alone(&mut self) {
        let is_playing = |session: &&Session| matches!(session.state(), State::Running | State::Frozen(_));
        let Some(session) = self.session.as_ref().filter(is_playing).filter(|_| !self.is_leaving) else { return };
        let alone = session.players().iter().count() == 1;
        self.is_alone_event_pending |= alone && self.had_other_players;
        self.had_other_players = !alone;
    }

    /// Reports to the frontend that this site plays on alone, if `detect_alone` found that. Called after the frontend
    /// got the current lobby.
    pub(super) fn notify_alone(&mut self, frontend: &mut dyn Frontend) {
        if std::mem::take(&mut self.is_alone_event_pending) {
            frontend.on_event(RunnerEvent::PlayingAlone);
        }
    }

    /// Handles a split brain in which the game of `site` is kept: marks that site as present, so that it can lead the
    /// roster once this site is evicted.
    pub(super) fn on_split_brain_resolved(&mut self, site: SiteId) {
        self.set_present(site, true);
        if let Some(member) = self.lobby.members.iter_mut().find(|member| member.site == site.number()) {
            member.is_present = true;
        }
    }
}
