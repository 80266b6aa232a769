//! The packet of the lobby: who I am, what I want to play, how my clock stands, and when we start.
//!
//! Both ends of a pair send the same message at the same rate, so nobody can be made to answer a small packet with a larger one.

use alloc::string::String;
use alloc::vec::Vec;

use super::{Error, Full, Reader, VERSION, Writer};
use crate::frame::{Frame, FrameRate};
use crate::id::{MAX_SITES, SiteId, SiteSet};
use crate::input::Ownership;
use crate::session::{Absent, GameId, MAX_OPTIONS, MAX_TEXT, MachineId, Settings, Starvation};

/// The packet of the lobby.
#[derive(Clone, Debug, PartialEq)]
pub struct Hello {
    /// The session's number.
    pub session: u64,
    /// The sender.
    pub site: SiteId,
    /// Which start of the sender's program this is: another number means that it was started anew.
    pub incarnation: u32,
    /// Which start of the receiver's program this answers; 0 if the sender has not heard of it.
    pub yours: u32,
    /// The sites that the sender agrees with and whose clocks it knows well enough, itself included.
    pub agreed: SiteSet,
    /// Whether the sender is going away.
    pub leaving: bool,
    /// Whether the sender wants to take a seat in a running game, and if so, whether it is ready to play.
    pub joining: Option<bool>,
    /// Why the receiver cannot take part.
    pub refusal: Option<Refusal>,
    /// When this was sent, in microseconds of the sender's clock.
    pub stamp_us: u64,
    /// The newest stamp received from the receiver, and how many nanoseconds ago.
    pub echo: Option<(u64, u32)>,
    /// When the game starts, in nanoseconds of group time.
    pub start_ns: Option<i64>,
    /// What the sender wants to play, and how.
    pub settings: Settings,
}

/// Why a site cannot take part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The game is running, and this seat's player was in it already.
    Running,
    /// The game goes on without the site, which was silent or too slow.
    Dropped,
    /// The sender went on alone without the receiver, and no quorum decided that.
    Alone {
        /// The frame that the sender's game has reached. 0: the sender gives its own game up for the receiver's.
        frame: Frame,
    },
}

const LEAVING: u8 = 0x01;
const ECHO: u8 = 0x02;
const START: u8 = 0x04;
const REFUSED_RUNNING: u8 = 0x08;
const REFUSED_DROPPED: u8 = 0x10;
const JOINING: u8 = 0x20;
const READY: u8 = 0x40;
const REFUSED_ALONE: u8 = 0x80;
const REFUSED: u8 = REFUSED_RUNNING | REFUSED_DROPPED | REFUSED_ALONE;

impl Hello {
    /// Reads a hello.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(bytes);
        let version = reader.u8()?;
        if version != VERSION {
            return Err(Error::Version(version));
        }
        let session = reader.u64()?;
        let site = SiteId::new(reader.u8()?).ok_or(Error::Malformed)?;
        let (incarnation, yours) = (reader.u32()?, reader.u32()?);
        let agreed = SiteSet::from_bits(reader.u8()?);
        let flags = reader.u8()?;
        if (flags & REFUSED).count_ones() > 1 || flags & (READY | JOINING) == READY {
            return Err(Error::Malformed);
        }
        let stamp_us = reader.u64()?;
        let echo = if flags & ECHO != 0 { Some((reader.u64()?, reader.u32()?)) } else { None };
        let start_ns = if flags & START != 0 { Some(reader.u64()? as i64) } else { None };
        let refusal = get_refusal(&mut reader, flags)?;
        let settings = get_settings(&mut reader)?;
        if !reader.is_empty() {
            return Err(Error::Malformed);
        }
        Ok(Self {
            session,
            site,
            incarnation,
            yours,
            agreed,
            leaving: flags & LEAVING != 0,
            joining: (flags & JOINING != 0).then_some(flags & READY != 0),
            refusal,
            stamp_us,
            echo,
            start_ns,
            settings,
        })
    }

    /// Writes a hello.
    pub fn encode(&self, buf: &mut [u8]) -> Result<usize, Full> {
        let mut writer = Writer::new(buf);
        writer.u8(VERSION)?;
        writer.put(&self.session.to_le_bytes())?;
        writer.u8(self.site.number())?;
        writer.put(&self.incarnation.to_le_bytes())?;
        writer.put(&self.yours.to_le_bytes())?;
        writer.u8(self.agreed.bits())?;
        writer.u8(self.flags())?;
        writer.put(&self.stamp_us.to_le_bytes())?;
        if let Some((stamp, held)) = self.echo {
            writer.put(&stamp.to_le_bytes())?;
            writer.put(&held.to_le_bytes())?;
        }
        if let Some(start) = self.start_ns {
            writer.put(&start.to_le_bytes())?;
        }
        if let Some(Refusal::Alone { frame }) = self.refusal {
            writer.put(&frame.number().to_le_bytes())?;
        }
        put_settings(&mut writer, &self.settings)?;
        Ok(writer.len())
    }

    fn flags(&self) -> u8 {
        let flag = |on: bool, bit: u8| if on { bit } else { 0 };
        flag(self.leaving, LEAVING)
            | flag(self.echo.is_some(), ECHO)
            | flag(self.start_ns.is_some(), START)
            | flag(self.refusal == Some(Refusal::Running), REFUSED_RUNNING)
            | flag(self.refusal == Some(Refusal::Dropped), REFUSED_DROPPED)
            | flag(matches!(self.refusal, Some(Refusal::Alone { .. })), REFUSED_ALONE)
            | flag(self.joining.is_some(), JOINING)
            | flag(self.joining == Some(true), READY)
    }
}

fn get_refusal(reader: &mut Reader<'_>, flags: u8) -> Result<Option<Refusal>, Error> {
    Ok(match flags & REFUSED {
        REFUSED_RUNNING => Some(Refusal::Running),
        REFUSED_DROPPED => Some(Refusal::Dropped),
        REFUSED_ALONE => Some(Refusal::Alone { frame: Frame::new(reader.u32()?) }),
        _ => None,
    })
}

impl Settings {
    /// The settings as bytes, as hellos and movies carry them; `None` if they do not fit into a packet.
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        let mut buf = [0; super::MAX_DATAGRAM];
        let mut writer = Writer::new(&mut buf);
        put_settings(&mut writer, self).ok()?;
        let len = writer.len();
        Some(buf[..len].to_vec())
    }

    /// Settings from bytes, which may come from anybody. Whether they can be used, [`check`](Self::check) tells.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(bytes);
        let settings = get_settings(&mut reader)?;
        if reader.is_empty() { Ok(settings) } else { Err(Error::Malformed) }
    }
}

/// The bytes that settings take in a hello, or `None` if they do not fit.
pub(crate) fn settings_size(settings: &Settings) -> Option<usize> {
    let mut buf = [0; super::MAX_DATAGRAM - 64];
    let mut writer = Writer::new(&mut buf);
    put_settings(&mut writer, settings).ok().map(|()| writer.len())
}

pub(crate) fn put_settings(writer: &mut Writer<'_>, settings: &Settings) -> Result<(), Full> {
    put_text(writer, &settings.game.name)?;
    writer.put(&settings.game.hash)?;
    put_text(writer, &settings.machine.name)?;
    put_text(writer, &settings.machine.version)?;
    writer.u8(settings.machine.options.len() as u8)?;
    for (key, value) in &settings.machine.options {
        put_text(writer, key)?;
        put_text(writer, value)?;
    }
    writer.put(&settings.machine.first_frames.to_le_bytes())?;
    let (frames, seconds) = settings.rate.fraction();
    writer.varint(frames)?;
    writer.varint(seconds)?;
    writer.varint(settings.lag)?;
    writer.varint(settings.window)?;
    let (repeat, pause) = (settings.absent == Absent::Repeat, settings.starvation == Starvation::Pause);
    writer.u8(u8::from(settings.auto) | u8::from(repeat) << 1 | u8::from(pause) << 2)?;
    writer.varint(settings.compare_every)?;
    writer.u8(settings.sites)?;
    writer.u8(settings.starters.bits())?;
    put_ownership(writer, settings)
}

pub(crate) fn get_settings(reader: &mut Reader<'_>) -> Result<Settings, Error> {
    let game = GameId { name: get_text(reader)?, hash: reader.array()? };
    let (name, version) = (get_text(reader)?, get_text(reader)?);
    let count = usize::from(reader.u8()?);
    if count > MAX_OPTIONS {
        return Err(Error::Malformed);
    }
    let mut options = Vec::new();
    for _ in 0..count {
        options.push((get_text(reader)?, get_text(reader)?));
    }
    let first_frames = reader.u64()?;
    let rate = FrameRate::new(reader.varint()?, reader.varint()?).ok_or(Error::Malformed)?;
    let (lag, window, flags) = (reader.varint()?, reader.varint()?, reader.u8()?);
    let compare_every = reader.varint()?;
    if flags > 7 {
        return Err(Error::Malformed);
    }
    let auto = flags & 1 != 0;
    let absent = if flags & 2 != 0 { Absent::Repeat } else { Absent::Nothing };
    let starvation = if flags & 4 != 0 { Starvation::Pause } else { Starvation::Wait };
    let (sites, starters) = (reader.u8()?, SiteSet::from_bits(reader.u8()?));
    if usize::from(sites) > MAX_SITES {
        return Err(Error::Malformed);
    }
    let ownership = get_ownership(reader, sites)?;
    let machine = MachineId { name, version, options, first_frames };
    Ok(Settings {
        game,
        machine,
        rate,
        lag,
        window,
        auto,
        absent,
        starvation,
        compare_every,
        sites,
        starters,
        ownership,
    })
}

fn put_ownership(writer: &mut Writer<'_>, settings: &Settings) -> Result<(), Full> {
    let ownership = &settings.ownership;
    writer.u8(ownership.players() as u8)?;
    for site in SiteId::first(usize::from(settings.sites)) {
        for player in 0..ownership.players() {
            writer.varint128(ownership.mask(site, player))?;
        }
    }
    Ok(())
}

fn get_ownership(reader: &mut Reader<'_>, sites: u8) -> Result<Ownership, Error> {
    let players = usize::from(reader.u8()?);
    if players == 0 || players > crate::input::MAX_PLAYERS {
        return Err(Error::Malformed);
    }
    let mut ownership = Ownership::new(players);
    for site in SiteId::first(usize::from(sites)) {
        for player in 0..players {
            ownership.give(site, player, reader.varint128()?).map_err(|_| Error::Malformed)?;
        }
    }
    Ok(ownership)
}

fn put_text(writer: &mut Writer<'_>, text: &str) -> Result<(), Full> {
    writer.u8(text.len() as u8)?;
    writer.put(text.as_bytes())
}

fn get_text(reader: &mut Reader<'_>) -> Result<String, Error> {
    let len = usize::from(reader.u8()?);
    if len > MAX_TEXT {
        return Err(Error::Malformed);
    }
    let bytes = reader.take(len)?;
    core::str::from_utf8(bytes).map(String::from).map_err(|_| Error::Malformed)
}
