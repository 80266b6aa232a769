//! From the machine's samples to the device's, without a crack.

/// A pair of samples, left and right.
pub(super) type SamplePair = [f32; 2];

/// Turns samples of one rate into samples of another: a cubic through the four nearest (Catmull and Rom), which is smooth where the
/// rate changes a little from frame to frame.
#[derive(Debug, Default)]
pub(super) struct Resampler {
    history: [SamplePair; 4],
    /// Where the next sample is, between the second and the third of those.
    position: f64,
}

impl Resampler {
    /// Takes one sample in, and gives out those that are due, `step` of the old ones apart.
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

/// Mends seams. Where what follows does not begin where the last left off, the difference is added and dies away
/// within a few milliseconds.
#[derive(Debug, Default)]
pub(super) struct Declicker {
    last: SamplePair,
    offset: SamplePair,
    seam: bool,
}

/// What is left of the difference after each sample: a hundredth after 460 samples, 10 ms.
const OFFSET_DECAY: f32 = 0.99;

impl Declicker {
    /// The next sample does not follow the last one.
    pub(super) fn seam(&mut self) {
        self.seam = true;
    }

    /// The sample to be heard for this one.
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
            // The rate sways by half a percent, as it does behind a fill level.
            let sway = 1.0 + 0.005 * (n as f64 / 3_000.0).sin();
            resampler.feed(sine(n, 440.0, 44_100.0), 44_100.0 / 48_000.0 * sway, |pair| out.push(pair));
        }
        assert!((47_700..48_300).contains(&out.len()), "{}", out.len());
        // The steepest place of the tone, and a hair for the sway.
        let steepest = 10_000.0 * (440.0 * std::f32::consts::TAU / 48_000.0);
        let settled = &out[16..]; // the first few lean on the silence before them
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
        let mut smooth = Declicker::default();
        let mut out: Vec<SamplePair> = (0..1_000).map(|n| smooth.process(sine(n, 200.0, 48_000.0))).collect();
        let steepest = largest_step(&out);
        smooth.seam();
        out.extend((1_400..3_000).map(|n| smooth.process(sine(n, 200.0, 48_000.0))));
        assert!(largest_step(&out) < steepest + 20_000.0 * (1.0 - OFFSET_DECAY), "{}", largest_step(&out));
        let last = sine(2_999, 200.0, 48_000.0)[0];
        assert!((out.last().unwrap()[0] - last).abs() < 1.0, "what was added has died away");
    }
}
