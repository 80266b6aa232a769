//! Sound output on systems other than Linux, by cpal. The sound libraries of these systems are always installed.

use std::sync::Arc;

use cpal::traits::{DeviceTrait, HostTrait, StreamTrait};
use cpal::{FromSample, SampleFormat, SizedSample};

use super::SampleSource;
use super::ring::SampleRing;

/// Open device, which plays until the stream is dropped.
pub(super) struct Stream(#[allow(dead_code, reason = "dropping it stops the device")] cpal::Stream);

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Stream")
    }
}

/// Opens the default device and starts to play. `new_source` gets the device's rate in pairs per second and creates the
/// queue to play from. Also returns the queue and the rate.
pub(super) fn open(
    new_source: impl FnOnce(f64) -> (Arc<SampleRing>, SampleSource),
) -> Result<(Stream, Arc<SampleRing>, f64), String> {
    let device = cpal::default_host().default_output_device().ok_or("there is no sound device")?;
    let supported = device.default_output_config().map_err(|error| error.to_string())?;
    let (format, config) = (supported.sample_format(), supported.config());
    let rate = f64::from(config.sample_rate);
    let (ring, source) = new_source(rate);
    let stream = match format {
        SampleFormat::F32 => build::<f32>(&device, config, source),
        SampleFormat::I16 => build::<i16>(&device, config, source),
        SampleFormat::U16 => build::<u16>(&device, config, source),
        SampleFormat::I32 => build::<i32>(&device, config, source),
        other => return Err(format!("the sound device requires the unsupported sample format {other}")),
    };
    let stream = stream.map_err(|error| error.to_string())?;
    stream.play().map_err(|error| error.to_string())?;
    Ok((Stream(stream), ring, rate))
}

fn build<T: SizedSample + FromSample<i16>>(
    device: &cpal::Device,
    config: cpal::StreamConfig,
    mut source: SampleSource,
) -> Result<cpal::Stream, cpal::Error> {
    let channels = usize::from(config.channels).max(1);
    let fill = move |out: &mut [T], _: &cpal::OutputCallbackInfo| {
        for frame in out.chunks_mut(channels) {
            let [left, right] = source.next_pair();
            // A mono device plays the mean; with more than two channels left and right alternate.
            let mono = ((i32::from(left) + i32::from(right)) / 2) as i16;
            for (channel, sample) in frame.iter_mut().enumerate() {
                let value = if channels == 1 { mono } else { [left, right][channel % 2] };
                *sample = T::from_sample(value);
            }
        }
    };
    // If the device is removed, the game continues without sound.
    device.build_output_stream::<T, _, _>(config, fill, |_| {}, None)
}
