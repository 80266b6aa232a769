//! Builder of settings, with defaults for a game over the Internet.

use super::{AbsentInput, GameId, MachineId, Settings, SettingsError, StarvationPolicy};
use crate::frame::FrameRate;
use crate::id::{MAX_SITES, SiteSet};
use crate::input::{InputWord, Ownership};

/// Default input delay, in frames: 33 ms at 60 frames per second, which players hardly notice.
const DEFAULT_INPUT_DELAY: u32 = 2;
/// Default prediction window, in frames. With the default input delay it covers an RTT of 333 ms at 60 frames per
/// second.
const DEFAULT_PREDICTION_WINDOW: u32 = 8;
/// Default input delay of a game in lockstep, in frames: it covers an RTT of 200 ms at 60 frames per second, as in Zhao
/// et al.
const DEFAULT_LOCKSTEP_DELAY: u32 = 6;
/// Default distance between comparisons of states, in frames: 1 s at 60 frames per second.
const DEFAULT_COMPARE_INTERVAL: u32 = 60;
/// Default bits that each player owns: a pad with 16 buttons.
const DEFAULT_BUTTONS: InputWord = 0xffff;

/// Builder of [`Settings`]. [`Settings::builder`] creates one with defaults for two sites with one player each.
#[derive(Clone, Debug)]
pub struct SettingsBuilder {
    settings: Settings,
}

impl SettingsBuilder {
    pub(super) fn new(game: GameId, machine: MachineId, rate: FrameRate) -> Self {
        let settings = Settings {
            game,
            machine,
            rate,
            input_delay: DEFAULT_INPUT_DELAY,
            prediction_window: DEFAULT_PREDICTION_WINDOW,
            auto_tune: false,
            absent_input: AbsentInput::default(),
            starvation_policy: StarvationPolicy::default(),
            compare_interval: DEFAULT_COMPARE_INTERVAL,
            site_count: 2,
            starting_sites: SiteSet::first(2),
            ownership: Ownership::one_player_per_site(2, DEFAULT_BUTTONS),
        };
        Self { settings }
    }

    /// Sets the number of seats. Each gets one player with a pad of 16 buttons, and the game waits for all of them;
    /// call [`ownership`](Self::ownership) and [`starting_sites`](Self::starting_sites) after this for anything else.
    pub fn sites(mut self, count: u8) -> Self {
        // `build` refuses a larger number.
        let sites = usize::from(count).min(MAX_SITES);
        self.settings.site_count = count;
        self.settings.starting_sites = SiteSet::first(sites);
        self.settings.ownership = Ownership::one_player_per_site(sites, DEFAULT_BUTTONS);
        self
    }

    /// Sets the sites that the game waits for before it starts. The other seats are free for late joiners.
    pub fn starting_sites(mut self, sites: SiteSet) -> Self {
        self.settings.starting_sites = sites;
        self
    }

    /// Sets the owner of each bit of the players' input words.
    pub fn ownership(mut self, ownership: Ownership) -> Self {
        self.settings.ownership = ownership;
        self
    }

    /// Sets the input delay, in frames.
    pub fn input_delay(mut self, frames: u32) -> Self {
        self.settings.input_delay = frames;
        self
    }

    /// Sets the prediction window, in frames.
    pub fn prediction_window(mut self, frames: u32) -> Self {
        self.settings.prediction_window = frames;
        self
    }

    /// Selects lockstep, for a machine that cannot save and load its state: no prediction, and an input delay of 6
    /// frames.
    pub fn lockstep(self) -> Self {
        self.input_delay(DEFAULT_LOCKSTEP_DELAY).prediction_window(0)
    }

    /// Lets the session change input delay and prediction window to follow the needs of links and machines.
    pub fn auto_tune(mut self) -> Self {
        self.settings.auto_tune = true;
        self
    }

    /// Sets the input of a dropped site's players.
    pub fn absent_input(mut self, input: AbsentInput) -> Self {
        self.settings.absent_input = input;
        self
    }

    /// Sets the reaction to buffered inputs that are about to run out.
    pub fn starvation_policy(mut self, policy: StarvationPolicy) -> Self {
        self.settings.starvation_policy = policy;
        self
    }

    /// Sets the distance between comparisons of states, in frames; 0 disables them.
    pub fn compare_interval(mut self, frames: u32) -> Self {
        self.settings.compare_interval = frames;
        self
    }

    /// Returns the settings if [`Settings::check`] accepts them.
    pub fn build(self) -> Result<Settings, SettingsError> {
        self.settings.check()?;
        Ok(self.settings)
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;
    use crate::id::SiteId;

    fn builder() -> SettingsBuilder {
        let rate = FrameRate::per_second(60).unwrap();
        Settings::builder(GameId::new("sum", [1; 32]), MachineId::new("adder", "1"), rate)
    }

    #[test]
    fn defaults_are_valid_for_every_number_of_sites() {
        for sites in 2..=8 {
            let settings = builder().sites(sites).build().unwrap();
            assert_eq!(settings.site_count, sites);
            assert_eq!(settings.ownership.players(), usize::from(sites));
            let last = SiteId::new(sites - 1).unwrap();
            assert!(settings.starting_sites.contains(last));
            assert_eq!(settings.ownership.mask(last, usize::from(sites) - 1), DEFAULT_BUTTONS);
        }
    }

    #[test]
    fn lockstep_predicts_nothing_and_covers_an_rtt_of_200_ms() {
        let settings = builder().lockstep().build().unwrap();
        assert_eq!((settings.input_delay, settings.prediction_window), (6, 0));
        assert!(settings.rate.period() * 12 >= crate::time::TimeDelta::from_millis(199));
    }

    #[test]
    fn invalid_settings_are_refused_with_the_reason() {
        assert_eq!(builder().sites(9).build(), Err(SettingsError::InvalidSiteCount(9)));
        assert_eq!(builder().input_delay(500).build(), Err(SettingsError::InputDelayTooLong(500)));
        let nobody = builder().starting_sites(SiteSet::EMPTY).build();
        assert!(nobody.unwrap_err().to_string().contains("starting"));
        let unnamed = Settings::builder(
            GameId::new("sum", [1; 32]),
            MachineId::new("\u{1b}", "1"),
            FrameRate::per_second(60).unwrap(),
        );
        assert!(matches!(unnamed.build(), Err(SettingsError::InvalidMachineName(_))));
    }
}
