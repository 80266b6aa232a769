//! Conversion from the machine's sample rate to the device's, and removal of clicks.

/// Left and right sample, in units of 16-bit samples.
pub(super) type SamplePair = [f32; 2];

/// Sample rate converter: Catmull-Rom cubic interpolation of the four nearest samples. It stays smooth while the rate
/// changes slightly from frame to frame.
#[derive(Debug, Default)]
pub(super) struct Resampler {
    history: [SamplePair; 4],
    /// Position of the next output sample between the second (0) and the third (1) sample of the history.
    position: f64,
}

impl Resampler {
    /// Feeds one input sample, and passes the output samples that are due to `out`. `step` is the distance between
    /// output samples, in input samples.
    pub(super) fn feed(&mut self, sample: SamplePair, step: f64, mut out: impl FnMut(SamplePair)) {
        self.history = [self.history[1], self.history[2], self.history[3], sample];
        while self.position < 1.0 {
            out(self.interpolate(self.position as f32));
            self.position += step.max(0.01);
        }
        self.position -= 1.0;
    }

    fn interpolate(&self, t: f32) -> SamplePair {
        let [a, b, c, d] = self.history;
        std::array::from_fn(|side| {
            let (a, b, c, d) = (a[side], b[side], c[side], d[side]);
            let (one, two, three) = ((c - a) / 2.0, a - 2.5 * b + 2.0 * c - d / 2.0, (d - a) / 2.0 + 1.5 * (b - c));
            ((three * t + two) * t + one) * t + b
        })
    }
}

/// Filter that removes clicks at discontinuities. It adds the difference between the last and the next sample as an
/// offset, which decays to 1 % within 10 ms.
#[derive(Debug, Default)]
pub(super) struct Declicker {
    last: SamplePair,
    offset: SamplePair,
    seam: bool,
}

/// Decay factor of the offset per sample: 1 % is left after 460 samples, 10 ms at 48 kHz.
const OFFSET_DECAY: f32 = 0.99;

impl Declicker {
    /// Marks a discontinuity before the next sample.
    pub(super) fn seam(&mut self) {
        self.seam = true;
    }

    /// Returns the sample with the decaying offset added.
    pub(super) fn process(&mut self, sample: SamplePair) -> SamplePair {
        if std::mem::take(&mut self.seam) {
            self.offset = std::array::from_fn(|side| self.last[side] - sample[side]);
        }
        self.last = std::array::from_fn(|side| sample[side] + self.offset[side]);
        self.offset = self.offset.map(|offset| offset * OFFSET_DECAY);
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sine(n: usize, hertz: f64, rate: f64) -> SamplePair {
        let value = (n as f64 * hertz * std::f64::consts::TAU / rate).sin() as f32 * 10_000.0;
        [value, -value]
    }

    fn largest_step(samples: &[SamplePair]) -> f32 {
        samples.windows(2).map(|two| (two[1][0] - two[0][0]).abs()).fold(0.0, f32::max)
    }

    #[test]
    fn resampled_tone_stays_smooth_while_the_rate_changes() {
        let (mut resampler, mut out) = (Resampler::default(), vec![]);
        for n in 0..44_100 {
            // The rate varies by 0.5 %, as it does when it follows the queue level.
            let variation = 1.0 + 0.005 * (n as f64 / 3_000.0).sin();
            resampler.feed(sine(n, 440.0, 44_100.0), 44_100.0 / 48_000.0 * variation, |pair| out.push(pair));
        }
        assert!((47_700..48_300).contains(&out.len()), "{}", out.len());
        // The steepest slope of the tone; the rate variation is allowed 1 % more.
        let steepest = 10_000.0 * (440.0 * std::f32::consts::TAU / 48_000.0);
        let settled = &out[16..]; // the first samples are interpolated with the silence before them
        assert!(largest_step(settled) < steepest * 1.01, "{} of {steepest}", largest_step(settled));
        assert!(out.iter().all(|[left, right]| (left + right).abs() < 0.01 && left.abs() < 10_050.0));
    }

    #[test]
    fn equal_rates_only_delay_samples() {
        let (mut resampler, mut out) = (Resampler::default(), vec![]);
        (0..100).for_each(|n| resampler.feed([n as f32, 0.0], 1.0, |pair| out.push(pair[0])));
        assert_eq!(out[2..], (0..98).map(|n| n as f32).collect::<Vec<_>>()[..]);
    }

    #[test]
    fn discontinuity_does_not_click() {
        let mut declicker = Declicker::default();
        let mut out: Vec<SamplePair> = (0..1_000).map(|n| declicker.process(sine(n, 200.0, 48_000.0))).collect();
        let steepest = largest_step(&out);
        declicker.seam();
        out.extend((1_400..3_000).map(|n| declicker.process(sine(n, 200.0, 48_000.0))));
        assert!(largest_step(&out) < steepest + 20_000.0 * (1.0 - OFFSET_DECAY), "{}", largest_step(&out));
        let last = sine(2_999, 200.0, 48_000.0)[0];
        assert!((out.last().unwrap()[0] - last).abs() < 1.0, "the offset has decayed");
    }
}
