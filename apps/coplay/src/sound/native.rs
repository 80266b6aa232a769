//! Sound on systems whose own libraries are always there.

use std::sync::Arc;

use cpal::traits::{DeviceTrait, HostTrait, StreamTrait};
use cpal::{FromSample, SampleFormat, SizedSample};

use super::Tap;
use super::ring::Ring;

/// A device that plays until this is dropped.
pub(super) struct Stream(#[allow(dead_code, reason = "dropping it is what stops it")] cpal::Stream);

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Stream")
    }
}

/// Opens the device and plays what the tap gives.
pub(super) fn open(tap: impl FnOnce(f64) -> (Arc<Ring>, Tap)) -> Result<(Stream, Arc<Ring>, f64), String> {
    let device = cpal::default_host().default_output_device().ok_or("there is no sound device")?;
    let supported = device.default_output_config().map_err(|error| error.to_string())?;
    let (format, config) = (supported.sample_format(), supported.config());
    let rate = f64::from(config.sample_rate);
    let (ring, tap) = tap(rate);
    let stream = match format {
        SampleFormat::F32 => build::<f32>(&device, config, tap),
        SampleFormat::I16 => build::<i16>(&device, config, tap),
        SampleFormat::U16 => build::<u16>(&device, config, tap),
        SampleFormat::I32 => build::<i32>(&device, config, tap),
        other => return Err(format!("the sound device wants samples as {other}, which are not known here")),
    };
    let stream = stream.map_err(|error| error.to_string())?;
    stream.play().map_err(|error| error.to_string())?;
    Ok((Stream(stream), ring, rate))
}

fn build<T: SizedSample + FromSample<i16>>(
    device: &cpal::Device,
    config: cpal::StreamConfig,
    mut tap: Tap,
) -> Result<cpal::Stream, cpal::Error> {
    let channels = usize::from(config.channels).max(1);
    let fill = move |out: &mut [T], _: &cpal::OutputCallbackInfo| {
        for place in out.chunks_mut(channels) {
            let [left, right] = tap.next();
            // One channel hears both, more than two hear them in turn.
            let both = ((i32::from(left) + i32::from(right)) / 2) as i16;
            for (channel, sample) in place.iter_mut().enumerate() {
                let heard = if channels == 1 { both } else { [left, right][channel % 2] };
                *sample = T::from_sample(heard);
            }
        }
    };
    // A device that goes away is silent from then on; the game goes on.
    device.build_output_stream::<T, _, _>(config, fill, |_| {}, None)
}
