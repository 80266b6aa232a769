//! Sound output: from the machine through a short queue to a device, if there is one.
//!
//! The sound follows the pace of the game: resampling stretches or compresses it by at most 0.5 %, which is inaudible,
//! to keep the queue near its target level. Sound that does not fit, as during fast forward, is dropped, and every
//! discontinuity is smoothed. A slow or missing device never delays the game.

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

/// Target level of the queue, in seconds: one frame, and a reserve for late threads.
const TARGET_SECONDS: f64 = 0.030;
/// Queue level above which new sound is dropped, as a multiple of the target level.
const OVERFLOW_FACTOR: f64 = 3.0;
/// Maximum relative stretch or compression.
const MAX_STRETCH: f64 = 0.005;
/// Weight of the newest queue level in the running mean, per frame.
const MEAN_SMOOTHING: f64 = 0.05;

/// Game side of the sound output: resamples the machine's sound into a queue.
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
    /// Sample rate of the device, in pairs per second.
    rate: f64,
    /// Running mean of the queue level, in pairs.
    mean_queued: f64,
    /// Device, which plays until this is dropped.
    _stream: device::Stream,
}

/// Device side of the sound output: reads the queue, and fades to silence when it is empty.
#[derive(Debug)]
pub(crate) struct SampleSource {
    ring: Arc<SampleRing>,
    declicker: Declicker,
    /// Whether playback waits until the queue reaches `resume_level`: at the start, and after the queue ran empty.
    is_starved: bool,
    /// Queue level at which playback starts or resumes, in pairs.
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

    /// Returns the next sample pair to play. At the start, and after the queue ran empty, fades to silence until the
    /// queue has reached the resume level.
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
    /// Creates a speaker without a device, which discards all sound.
    pub fn silent() -> Self {
        Self {
            output: None,
            resampler: Resampler::default(),
            declicker: Declicker::default(),
            volume: 1.0,
            muted: false,
        }
    }

    /// Opens the system's default device, with this volume in percent. The error is the reason why that failed.
    pub fn open(volume: u8, muted: bool) -> Result<Self, String> {
        let open = |rate: f64| {
            let ring = Arc::new(SampleRing::new((rate * TARGET_SECONDS * (OVERFLOW_FACTOR + 1.0)) as usize));
            (ring.clone(), SampleSource::new(ring, rate))
        };
        let (stream, ring, rate) = device::open(open)?;
        let output = Output { ring, rate, mean_queued: rate * TARGET_SECONDS, _stream: stream };
        let mut speaker = Self { output: Some(output), muted, ..Self::silent() };
        speaker.set_volume(volume);
        Ok(speaker)
    }

    /// Sets the volume in percent. The amplitude is the square of the volume, since loudness is perceived by ratio.
    pub fn set_volume(&mut self, percent: u8) {
        self.volume = (f32::from(percent.min(100)) / 100.0).powi(2);
    }

    /// Mutes or unmutes the sound, without a click.
    pub fn set_muted(&mut self, muted: bool) {
        self.muted = muted;
    }

    /// Queues the sound of one frame for the device. `rate` is the machine's, in pairs per second. `seam` marks a
    /// discontinuity before the frame, such as a loaded state, a reset or a rollback. Drops the sound if it is muted or
    /// the queue is too full.
    pub fn play(&mut self, sound: &[[i16; 2]], rate: f64, seam: bool) {
        let Some(output) = &mut self.output else { return };
        if seam {
            self.declicker.seam();
        }
        if self.muted || sound.is_empty() || rate <= 0.0 {
            return self.declicker.seam();
        }
        let (queued, target) = (output.ring.len() as f64, output.rate * TARGET_SECONDS);
        let due = sound.len() as f64 * output.rate / rate;
        if queued > target * OVERFLOW_FACTOR || queued + due * 1.01 + 4.0 > output.ring.capacity() as f64 {
            return self.declicker.seam();
        }
        output.mean_queued += (queued - output.mean_queued) * MEAN_SMOOTHING;
        let step = rate / output.rate / (1.0 + stretch(output.mean_queued, target));
        let (declicker, ring, volume) = (&mut self.declicker, &output.ring, self.volume);
        for pair in sound {
            self.resampler.feed(pair.map(f32::from), step, |pair| {
                let sample = declicker.process(pair).map(|sample| (sample * volume) as i16);
                ring.put(sample);
            });
        }
    }
}

/// Returns the relative stretch for a mean queue level: positive if the queue is below its target.
fn stretch(queued: f64, target: f64) -> f64 {
    ((target - queued) / target).clamp(-1.0, 1.0) * MAX_STRETCH
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_level_converges_despite_clock_skew() {
        // A device 0.3 % faster than the game's clock, and one 0.3 % slower.
        for skew in [1.003, 0.997] {
            let (mut queued, mut mean, target) = (0.0f64, 1440.0, 1440.0);
            for frame in 0..6_000 {
                mean += (queued - mean) * MEAN_SMOOTHING;
                queued += 800.0 * (1.0 + stretch(mean, target));
                queued = (queued - 800.0 * skew).max(0.0);
                assert!(
                    frame < 600 || (100.0..3.0 * target).contains(&queued),
                    "{queued} pairs queued in frame {frame}"
                );
            }
        }
    }

    #[test]
    fn starved_source_fades_out_and_in_without_clicks() {
        let ring = Arc::new(SampleRing::new(4_096));
        let mut source = SampleSource::new(ring.clone(), 48_000.0);
        let mut played = vec![];
        for _ in 0..3 {
            (0..2_000).for_each(|_| assert!(ring.put([10_000, -10_000])));
            played.extend((0..3_000).map(|_| source.next_pair()));
        }
        let steepest = played.windows(2).map(|two| (i32::from(two[1][0]) - i32::from(two[0][0])).abs()).max();
        assert!(steepest.unwrap() < 150, "{steepest:?}");
        assert!(played.iter().any(|pair| pair[0] > 9_900) && played.iter().skip(100).any(|pair| pair[0] < 100));
    }

    #[test]
    fn playing_without_a_device_does_nothing() {
        let mut speaker = Speaker::silent();
        speaker.set_volume(50);
        speaker.play(&[[1, 1]; 800], 48_000.0, true);
    }
}
