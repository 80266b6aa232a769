//! Sound: from the machine, through a short queue, to a device, if there is one.
//!
//! The game's pace leads and the sound follows: samples are stretched or squeezed by at most half a percent, which nobody hears, so that
//! the queue stays about as full as it is. What does not fit, as when the game is played faster, is left out, and every
//! seam is mended. A device that is late or gone never holds up the game.

#[cfg(target_os = "linux")]
mod alsa;
#[cfg(not(target_os = "linux"))]
mod native;
mod resample;
mod ring;

use std::sync::Arc;

#[cfg(target_os = "linux")]
use alsa as device;
#[cfg(not(target_os = "linux"))]
use native as device;

use resample::{Declicker, Resampler};
use ring::SampleRing;

/// How much waits in the queue when all is well, in seconds: a frame, and a bit for threads that are late.
const TARGET_SECONDS: f64 = 0.030;
/// What comes is left out when so many times the target waits.
const OVERFLOW_FACTOR: f64 = 3.0;
/// The most that samples are stretched or squeezed.
const MAX_STRETCH: f64 = 0.005;
/// How quickly the mean of what waits follows, per frame.
const MEAN_SMOOTHING: f64 = 0.05;

/// The game's end: takes what a machine plays.
#[derive(Debug)]
pub struct Speaker {
    output: Option<Output>,
    resampler: Resampler,
    declicker: Declicker,
    volume: f32,
    muted: bool,
}

#[derive(Debug)]
struct Output {
    ring: Arc<SampleRing>,
    /// Pairs per second that the device takes.
    rate: f64,
    /// The mean of what waits in the queue, in pairs.
    mean_queued: f64,
    /// Goes on for as long as this is kept.
    _stream: device::Stream,
}

/// The device's end: takes what waits, and fades into silence where nothing does.
#[derive(Debug)]
pub(crate) struct SampleSource {
    ring: Arc<SampleRing>,
    declicker: Declicker,
    /// Nothing came; wait until so much is there that it can go on.
    is_starved: bool,
    resume_level: usize,
}

impl SampleSource {
    fn new(ring: Arc<SampleRing>, rate: f64) -> Self {
        Self {
            ring,
            declicker: Declicker::default(),
            is_starved: true,
            resume_level: (rate * TARGET_SECONDS / 2.0) as usize,
        }
    }

    /// The next pair to be heard.
    pub(crate) fn next_pair(&mut self) -> [i16; 2] {
        if self.is_starved && self.ring.len() >= self.resume_level {
            self.is_starved = false;
            self.declicker.seam();
        }
        let pair = if self.is_starved { None } else { self.ring.take() };
        if pair.is_none() && !self.is_starved {
            self.is_starved = true;
            self.declicker.seam();
        }
        let pair = pair.unwrap_or_default().map(f32::from);
        self.declicker.process(pair).map(|sample| sample as i16)
    }
}

impl Speaker {
    /// No sound at all.
    pub fn silent() -> Self {
        Self {
            output: None,
            resampler: Resampler::default(),
            declicker: Declicker::default(),
            volume: 1.0,
            muted: false,
        }
    }

    /// The device that the system plays on, or why there is none.
    pub fn open(volume: u8, muted: bool) -> Result<Self, String> {
        let open = |rate: f64| {
            let ring = Arc::new(SampleRing::new((rate * TARGET_SECONDS * (OVERFLOW_FACTOR + 1.0)) as usize));
            (ring.clone(), SampleSource::new(ring, rate))
        };
        let (stream, ring, rate) = device::open(open)?;
        let out = Output { ring, rate, mean_queued: rate * TARGET_SECONDS, _stream: stream };
        let mut speaker = Self { output: Some(out), muted, ..Self::silent() };
        speaker.set_volume(volume);
        Ok(speaker)
    }

    /// How loud, in percent. Ears judge by ratio, so the middle is quieter than half.
    pub fn set_volume(&mut self, percent: u8) {
        self.volume = (f32::from(percent.min(100)) / 100.0).powi(2);
    }

    /// Whether nothing is to be heard.
    pub fn set_muted(&mut self, muted: bool) {
        self.muted = muted;
    }

    /// Plays the sound of one frame, of so many pairs per second. `seam` says that it does not follow the sound before it: a state was
    /// loaded, or the past was repaired.
    pub fn play(&mut self, sound: &[[i16; 2]], rate: f64, seam: bool) {
        let Some(out) = &mut self.output else { return };
        if seam {
            self.declicker.seam();
        }
        if self.muted || sound.is_empty() || rate <= 0.0 {
            return self.declicker.seam();
        }
        let (waits, target) = (out.ring.len() as f64, out.rate * TARGET_SECONDS);
        let due = sound.len() as f64 * out.rate / rate;
        if waits > target * OVERFLOW_FACTOR || waits + due * 1.01 + 4.0 > out.ring.capacity() as f64 {
            return self.declicker.seam();
        }
        out.mean_queued += (waits - out.mean_queued) * MEAN_SMOOTHING;
        let step = rate / out.rate / (1.0 + stretch(out.mean_queued, target));
        let (smooth, ring, volume) = (&mut self.declicker, &out.ring, self.volume);
        for pair in sound {
            self.resampler.feed(pair.map(f32::from), step, |pair| {
                let heard = smooth.process(pair).map(|sample| (sample * volume) as i16);
                ring.put(heard);
            });
        }
    }
}

/// By how much samples are stretched when so many wait.
fn stretch(waits: f64, target: f64) -> f64 {
    ((target - waits) / target).clamp(-1.0, 1.0) * MAX_STRETCH
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_level_converges_despite_clock_skew() {
        // A device 0.3 % faster than the game's clock, and one as much slower.
        for skew in [1.003, 0.997] {
            let (mut waits, mut mean, target) = (0.0f64, 1440.0, 1440.0);
            for frame in 0..6_000 {
                mean += (waits - mean) * MEAN_SMOOTHING;
                waits += 800.0 * (1.0 + stretch(mean, target));
                waits = (waits - 800.0 * skew).max(0.0);
                assert!(frame < 600 || (100.0..3.0 * target).contains(&waits), "{waits} wait in frame {frame}");
            }
        }
    }

    #[test]
    fn starved_source_fades_out_and_in_without_clicks() {
        let ring = Arc::new(SampleRing::new(4_096));
        let mut tap = SampleSource::new(ring.clone(), 48_000.0);
        let mut heard = vec![];
        for _ in 0..3 {
            (0..2_000).for_each(|_| assert!(ring.put([10_000, -10_000])));
            heard.extend((0..3_000).map(|_| tap.next_pair()));
        }
        let steepest = heard.windows(2).map(|two| (i32::from(two[1][0]) - i32::from(two[0][0])).abs()).max();
        assert!(steepest.unwrap() < 150, "{steepest:?}");
        assert!(heard.iter().any(|pair| pair[0] > 9_900) && heard.iter().skip(100).any(|pair| pair[0] < 100));
    }

    #[test]
    fn playing_without_a_device_does_nothing() {
        let mut speaker = Speaker::silent();
        speaker.set_volume(50);
        speaker.play(&[[1, 1]; 800], 48_000.0, true);
    }
}
