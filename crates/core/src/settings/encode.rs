//! Encoding of the settings, as in hellos and movies.

use alloc::string::String;
use alloc::vec::Vec;

use super::{AbsentInput, GameId, MAX_OPTIONS, MAX_TEXT_LEN, MachineId, Settings, StarvationPolicy};
use crate::codec::{BufferFull, ByteReader, ByteWriter, DecodeError, MAX_DATAGRAM};
use crate::frame::FrameRate;
use crate::id::{MAX_SITES, SiteId, SiteSet};
use crate::input::{MAX_PLAYERS, Ownership};

impl Settings {
    /// Encodes the settings as in hellos and movies. Returns `None` if they do not fit into a packet.
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        let mut buf = [0; MAX_DATAGRAM];
        let mut writer = ByteWriter::new(&mut buf);
        put_settings(&mut writer, self).ok()?;
        let len = writer.len();
        Some(buf[..len].to_vec())
    }

    /// Decodes settings from untrusted bytes. The caller has to validate them with [`check`](Self::check).
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = ByteReader::new(bytes);
        let settings = get_settings(&mut reader)?;
        if reader.is_empty() { Ok(settings) } else { Err(DecodeError::Malformed) }
    }
}

/// Returns the encoded size of the settings in bytes; `None` if they do not fit into a hello.
pub(crate) fn settings_len(settings: &Settings) -> Option<usize> {
    let mut buf = [0; MAX_DATAGRAM - 64];
    let mut writer = ByteWriter::new(&mut buf);
    put_settings(&mut writer, settings).ok().map(|()| writer.len())
}

pub(crate) fn put_settings(writer: &mut ByteWriter<'_>, settings: &Settings) -> Result<(), BufferFull> {
    put_text(writer, &settings.game.name)?;
    writer.put(&settings.game.hash)?;
    put_text(writer, &settings.machine.name)?;
    put_text(writer, &settings.machine.version)?;
    writer.u8(settings.machine.options.len() as u8)?;
    for (key, value) in &settings.machine.options {
        put_text(writer, key)?;
        put_text(writer, value)?;
    }
    writer.put(&settings.machine.first_frames_hash.to_le_bytes())?;
    let (frames, seconds) = settings.rate.fraction();
    writer.varint(frames)?;
    writer.varint(seconds)?;
    writer.varint(settings.input_delay)?;
    writer.varint(settings.prediction_window)?;
    let (repeat, pause) =
        (settings.absent_input == AbsentInput::Repeat, settings.starvation_policy == StarvationPolicy::Pause);
    writer.u8(u8::from(settings.auto_tune) | u8::from(repeat) << 1 | u8::from(pause) << 2)?;
    writer.varint(settings.compare_interval)?;
    writer.u8(settings.site_count)?;
    writer.u8(settings.starting_sites.bits())?;
    put_ownership(writer, settings)
}

pub(crate) fn get_settings(reader: &mut ByteReader<'_>) -> Result<Settings, DecodeError> {
    let game = GameId { name: get_text(reader)?, hash: reader.array()? };
    let (name, version) = (get_text(reader)?, get_text(reader)?);
    let count = usize::from(reader.u8()?);
    if count > MAX_OPTIONS {
        return Err(DecodeError::Malformed);
    }
    let mut options = Vec::new();
    for _ in 0..count {
        options.push((get_text(reader)?, get_text(reader)?));
    }
    let first_frames_hash = reader.u64()?;
    let rate = FrameRate::new(reader.varint()?, reader.varint()?).ok_or(DecodeError::Malformed)?;
    let (input_delay, prediction_window, flags) = (reader.varint()?, reader.varint()?, reader.u8()?);
    let compare_interval = reader.varint()?;
    if flags > 7 {
        return Err(DecodeError::Malformed);
    }
    let auto_tune = flags & 1 != 0;
    let absent_input = if flags & 2 != 0 { AbsentInput::Repeat } else { AbsentInput::Nothing };
    let starvation_policy = if flags & 4 != 0 { StarvationPolicy::Pause } else { StarvationPolicy::Wait };
    let (site_count, starting_sites) = (reader.u8()?, SiteSet::from_bits(reader.u8()?));
    if usize::from(site_count) > MAX_SITES {
        return Err(DecodeError::Malformed);
    }
    let ownership = get_ownership(reader, site_count)?;
    let machine = MachineId { name, version, options, first_frames_hash };
    Ok(Settings {
        game,
        machine,
        rate,
        input_delay,
        prediction_window,
        auto_tune,
        absent_input,
        starvation_policy,
        compare_interval,
        site_count,
        starting_sites,
        ownership,
    })
}

fn put_ownership(writer: &mut ByteWriter<'_>, settings: &Settings) -> Result<(), BufferFull> {
    let ownership = &settings.ownership;
    writer.u8(ownership.players() as u8)?;
    for site in SiteId::first(usize::from(settings.site_count)) {
        for player in 0..ownership.players() {
            writer.varint128(ownership.mask(site, player))?;
        }
    }
    Ok(())
}

fn get_ownership(reader: &mut ByteReader<'_>, site_count: u8) -> Result<Ownership, DecodeError> {
    let players = usize::from(reader.u8()?);
    if players == 0 || players > MAX_PLAYERS {
        return Err(DecodeError::Malformed);
    }
    let mut ownership = Ownership::new(players);
    for site in SiteId::first(usize::from(site_count)) {
        for player in 0..players {
            ownership.assign(site, player, reader.varint128()?).map_err(|_| DecodeError::Malformed)?;
        }
    }
    Ok(ownership)
}

fn put_text(writer: &mut ByteWriter<'_>, text: &str) -> Result<(), BufferFull> {
    writer.u8(text.len() as u8)?;
    writer.put(text.as_bytes())
}

fn get_text(reader: &mut ByteReader<'_>) -> Result<String, DecodeError> {
    let len = usize::from(reader.u8()?);
    if len > MAX_TEXT_LEN {
        return Err(DecodeError::Malformed);
    }
    let bytes = reader.take(len)?;
    core::str::from_utf8(bytes).map(String::from).map_err(|_| DecodeError::Malformed)
}
