//! Hello: the packet of the lobby, with the sender's identity, settings, clock and the planned start.
//!
//! In the lobby, both ends of a pair send the same kind of message at the same rate, whatever arrives, so a lobby
//! cannot be abused to amplify traffic to a third party.

use crate::codec::{BufferFull, ByteReader, ByteWriter, DecodeError, VERSION};
use crate::frame::Frame;
use crate::id::{SiteId, SiteSet};
use crate::settings::Settings;
use crate::settings::encode::{get_settings, put_settings};

/// The packet of the lobby, which a site sends to its peers until it plays, and then to peers that do not play with it.
#[derive(Clone, Debug, PartialEq)]
pub struct Hello {
    /// Id of the sender's session. The receiver drops hellos of other sessions.
    pub session_id: u64,
    /// Site of the sender.
    pub site: SiteId,
    /// Incarnation of the sender's program. A greater number than before means that the program was restarted.
    pub incarnation: u32,
    /// The newest incarnation of the receiver's program that the sender knows; 0 if it knows none.
    pub your_incarnation: u32,
    /// Sites that have the sender's settings and whose clocks the sender knows well enough, including the sender
    /// itself.
    pub agreed_sites: SiteSet,
    /// Whether the sender leaves without having given any input.
    pub is_leaving: bool,
    /// Whether the sender, which wants to join a running game, is ready to play. `None` if it does not want to join
    /// one.
    pub join_readiness: Option<bool>,
    /// Reason for which the sender does not let the receiver play; `None` if the sender does not refuse the receiver.
    pub refusal: Option<Refusal>,
    /// Send time in microseconds of the sender's clock.
    pub stamp_us: u64,
    /// The newest stamp received from the receiver, and the time in nanoseconds for which the sender has held it;
    /// `None` if no new stamp was received.
    pub echo: Option<(u64, u32)>,
    /// Start of the game in nanoseconds of group time; `None` until it is decided.
    pub start_ns: Option<i64>,
    /// The settings that the sender wants to play with.
    pub settings: Settings,
}

/// Reason for which the sender of a hello does not let the receiver play.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The game is running, and a site with the receiver's number has already played in it.
    AlreadyRunning,
    /// The game continues without the receiver: it was dropped, or the command that admitted it was void.
    Dropped,
    /// The sender continued alone without the receiver, and without the decision of a quorum.
    ContinuedAlone {
        /// The frame that the sender's game has reached; 0 if the sender gives its own game up for the receiver's.
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
const REFUSAL_MASK: u8 = REFUSED_RUNNING | REFUSED_DROPPED | REFUSED_ALONE;

impl Hello {
    /// Decodes a hello. Fails with [`DecodeError::Version`] if its first byte is not [`VERSION`].
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = ByteReader::new(bytes);
        let version = reader.u8()?;
        if version != VERSION {
            return Err(DecodeError::Version(version));
        }
        let session_id = reader.u64()?;
        let site = SiteId::new(reader.u8()?).ok_or(DecodeError::Malformed)?;
        let (incarnation, your_incarnation) = (reader.u32()?, reader.u32()?);
        let agreed_sites = SiteSet::from_bits(reader.u8()?);
        let flags = reader.u8()?;
        if (flags & REFUSAL_MASK).count_ones() > 1 || flags & (READY | JOINING) == READY {
            return Err(DecodeError::Malformed);
        }
        let stamp_us = reader.u64()?;
        let echo = if flags & ECHO != 0 { Some((reader.u64()?, reader.u32()?)) } else { None };
        let start_ns = if flags & START != 0 { Some(reader.u64()? as i64) } else { None };
        let refusal = get_refusal(&mut reader, flags)?;
        let settings = get_settings(&mut reader)?;
        if !reader.is_empty() {
            return Err(DecodeError::Malformed);
        }
        Ok(Self {
            session_id,
            site,
            incarnation,
            your_incarnation,
            agreed_sites,
            is_leaving: flags & LEAVING != 0,
            join_readiness: (flags & JOINING != 0).then_some(flags & READY != 0),
            refusal,
            stamp_us,
            echo,
            start_ns,
            settings,
        })
    }

    /// Encodes a hello and returns its length in bytes.
    pub fn encode(&self, buf: &mut [u8]) -> Result<usize, BufferFull> {
        let mut writer = ByteWriter::new(buf);
        writer.u8(VERSION)?;
        writer.put(&self.session_id.to_le_bytes())?;
        writer.u8(self.site.number())?;
        writer.put(&self.incarnation.to_le_bytes())?;
        writer.put(&self.your_incarnation.to_le_bytes())?;
        writer.u8(self.agreed_sites.bits())?;
        writer.u8(self.flags())?;
        writer.put(&self.stamp_us.to_le_bytes())?;
        if let Some((stamp, held)) = self.echo {
            writer.put(&stamp.to_le_bytes())?;
            writer.put(&held.to_le_bytes())?;
        }
        if let Some(start) = self.start_ns {
            writer.put(&start.to_le_bytes())?;
        }
        if let Some(Refusal::ContinuedAlone { frame }) = self.refusal {
            writer.put(&frame.number().to_le_bytes())?;
        }
        put_settings(&mut writer, &self.settings)?;
        Ok(writer.len())
    }

    fn flags(&self) -> u8 {
        let flag = |on: bool, bit: u8| if on { bit } else { 0 };
        flag(self.is_leaving, LEAVING)
            | flag(self.echo.is_some(), ECHO)
            | flag(self.start_ns.is_some(), START)
            | flag(self.refusal == Some(Refusal::AlreadyRunning), REFUSED_RUNNING)
            | flag(self.refusal == Some(Refusal::Dropped), REFUSED_DROPPED)
            | flag(matches!(self.refusal, Some(Refusal::ContinuedAlone { .. })), REFUSED_ALONE)
            | flag(self.join_readiness.is_some(), JOINING)
            | flag(self.join_readiness == Some(true), READY)
    }
}

fn get_refusal(reader: &mut ByteReader<'_>, flags: u8) -> Result<Option<Refusal>, DecodeError> {
    Ok(match flags & REFUSAL_MASK {
        REFUSED_RUNNING => Some(Refusal::AlreadyRunning),
        REFUSED_DROPPED => Some(Refusal::Dropped),
        REFUSED_ALONE => Some(Refusal::ContinuedAlone { frame: Frame::new(reader.u32()?) }),
        _ => None,
    })
}
