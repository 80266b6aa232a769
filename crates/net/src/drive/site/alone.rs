//! The last player left at a site: when it plays on alone, who is told, and how two sites that both did agree on one list again.

use coplay::id::SiteId;
use coplay::session::{Session, State};
use coplay::time::Instant;

use super::Drive;
use crate::clock;
use crate::drive::{Front, News};

/// What a site does when every other player is silent, and it cannot drop them because it is no quorum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Alone {
    /// Waits, and ends after [`GIVE_UP`](super::GIVE_UP) times `drop_after`.
    #[default]
    Wait,
    /// Waits until the person in front of it decides by [`Command::GoOnAlone`](crate::drive::Command::GoOnAlone).
    Ask,
    /// Plays on alone as soon as `drop_after` has passed.
    GoOn,
}

impl Drive {
    /// Whether the person in front of this site can decide to play on alone now.
    pub(super) fn can_go_on_alone(&self, now: Instant) -> bool {
        self.session.as_ref().is_some_and(|session| session.can_continue_alone(now))
    }

    pub(super) fn go_on_alone(&mut self) {
        if let Some(session) = &mut self.session {
            session.continue_alone(clock::now());
        }
    }

    /// Plays on alone where nobody needs to be asked.
    pub(super) fn go_on_alone_unasked(&mut self, now: Instant) {
        if self.manner.alone == Alone::GoOn && self.manner.drop_after.is_some() && self.can_go_on_alone(now) {
            self.go_on_alone();
        }
    }

    /// Notices when the last other player is gone. The front end has heard of all events by now.
    pub(super) fn watch_company(&mut self) {
        let plays = |session: &&Session| matches!(session.state(), State::Running | State::Frozen(_));
        let Some(session) = self.session.as_ref().filter(plays).filter(|_| !self.leaving) else { return };
        let alone = session.players().iter().count() == 1;
        self.newly_alone |= alone && self.had_company;
        self.had_company = !alone;
    }

    /// Tells the front end that this site plays on alone. By now it knows the party as it is, and so what leads in.
    pub(super) fn tell_alone(&mut self, front: &mut dyn Front) {
        if std::mem::take(&mut self.newly_alone) {
            front.tell(News::Alone);
        }
    }

    /// Another site went on alone, too, and its game is kept: it is there, and keeps the list from now on.
    pub(super) fn on_met(&mut self, site: SiteId) {
        self.set_here(site, true);
        if let Some(member) = self.party.members.iter_mut().find(|member| member.site == site.number()) {
            member.here = true;
        }
    }
}
