//! Packets between the sites of a peer world. A datagram is one byte that selects family and layout, then any number of
//! items.

use super::{MAX_RECORD_SIZE, MAX_STATE_SIZE, WorldRegion, WorldSiteId};
use crate::clock::ClockEcho;
use crate::codec::{BufferFull, ByteReader, ByteWriter, DecodeError};
use crate::time::{Instant, TimeDelta};

/// First byte of every datagram: 0x30 for the family of the item lists, plus the number of this layout.
const FAMILY: u8 = 0x31;

/// One item of a datagram between sites.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeerWorldItem<'a> {
    /// State of one of the sender's entities.
    Update(EntityStateUpdate<'a>),
    /// The sender's estimate of world time, as its lead over the sender's clock; `None` if the sender does not know it.
    WorldTime(Option<TimeDelta>),
    /// Marks that the [`OwnRegion`](Self::OwnRegion) items that follow in the datagram are all regions in which the
    /// sender has an entity.
    RegionsComplete,
    /// A region in which the sender has an entity.
    OwnRegion(WorldRegion),
    /// Clock probe: its send time on the sender's clock. The receiver returns it in an echo.
    Probe(Instant),
    /// The answer to a probe.
    Echo(ClockEcho),
    /// Quality of the link from a site to the sender, as fractions in units of 1/255.
    LinkReport {
        /// Site whose updates the sender counted.
        site: WorldSiteId,
        /// Fraction of the recent updates that did not arrive.
        lost: u8,
        /// Fraction of the recent updates that arrived after the view of their tick.
        late: u8,
    },
    /// The version that the sender has of a site's record.
    RecordVersion {
        /// The site that the record belongs to.
        site: WorldSiteId,
        /// Version of the record; 0 if the sender has none.
        version: u32,
    },
    /// Request for a site's record. The answer is the record, or a version of 0 if there is none. A site requests its
    /// own record only after a start of its program, so the request reveals a restart.
    RecordRequest {
        /// The site that the record belongs to.
        site: WorldSiteId,
    },
    /// A site's record.
    Record {
        /// The site that the record belongs to.
        site: WorldSiteId,
        /// Version of the record: [`SiteRecord::version`](crate::peer_world::SiteRecord::version).
        version: u32,
        /// Contents of the record.
        bytes: &'a [u8],
    },
    /// The sender leaves the world. Its entities vanish at once.
    Leave,
}

/// State of an entity at a tick.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntityStateUpdate<'a> {
    /// Index of the entity among the sender's.
    pub entity_index: u8,
    /// Sequence number of this update among those of the entity, by which the receiver detects losses.
    pub sequence: u16,
    /// Low 16 bits of the tick. The receiver takes the tick with these bits that is nearest to its current tick.
    pub tick: u16,
    /// State in the game's encoding.
    pub state: &'a [u8],
}

const UPDATE: u8 = 1;
const WORLD_TIME: u8 = 2;
const NO_WORLD_TIME: u8 = 3;
const REGIONS_COMPLETE: u8 = 12;
const OWN_REGION: u8 = 4;
const PROBE: u8 = 5;
const ECHO: u8 = 6;
const LINK_REPORT: u8 = 7;
const RECORD_VERSION: u8 = 8;
const RECORD_REQUEST: u8 = 9;
const RECORD: u8 = 10;
const LEAVE: u8 = 11;

/// Iterator over the items of a datagram, which ends after the first malformed item.
#[derive(Clone, Debug)]
pub struct PeerWorldItems<'a> {
    reader: ByteReader<'a>,
}

impl<'a> PeerWorldItems<'a> {
    /// Checks the first byte of a datagram and returns an iterator over its items. Fails with [`DecodeError::Version`]
    /// for another layout of the family.
    pub fn new(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = ByteReader::new(bytes);
        match reader.u8()? {
            FAMILY => Ok(Self { reader }),
            other if other & 0xf0 == FAMILY & 0xf0 => Err(DecodeError::Version(other & 0x0f)),
            _ => Err(DecodeError::Malformed),
        }
    }

    fn read(&mut self) -> Result<PeerWorldItem<'a>, DecodeError> {
        let reader = &mut self.reader;
        Ok(match reader.u8()? {
            UPDATE => {
                let (index, sequence, tick) = (reader.u8()?, reader.u16()?, reader.u16()?);
                PeerWorldItem::Update(EntityStateUpdate {
                    entity_index: index,
                    sequence,
                    tick,
                    state: reader.bytes(MAX_STATE_SIZE)?,
                })
            }
            WORLD_TIME => PeerWorldItem::WorldTime(Some(TimeDelta::from_nanos(reader.u64()? as i64))),
            NO_WORLD_TIME => PeerWorldItem::WorldTime(None),
            REGIONS_COMPLETE => PeerWorldItem::RegionsComplete,
            OWN_REGION => PeerWorldItem::OwnRegion(WorldRegion { x: reader.u8()?, y: reader.u8()? }),
            PROBE => PeerWorldItem::Probe(reader.instant()?),
            ECHO => PeerWorldItem::Echo(ClockEcho {
                sent: reader.instant()?,
                received: reader.instant()?,
                answered: reader.instant()?,
            }),
            LINK_REPORT => {
                PeerWorldItem::LinkReport { site: get_site(reader)?, lost: reader.u8()?, late: reader.u8()? }
            }
            RECORD_VERSION => PeerWorldItem::RecordVersion { site: get_site(reader)?, version: reader.varint()? },
            RECORD_REQUEST => PeerWorldItem::RecordRequest { site: get_site(reader)? },
            RECORD => {
                let (site, version) = (get_site(reader)?, reader.varint()?);
                PeerWorldItem::Record { site, version, bytes: reader.bytes(MAX_RECORD_SIZE)? }
            }
            LEAVE => PeerWorldItem::Leave,
            _ => return Err(DecodeError::Malformed),
        })
    }
}

impl<'a> Iterator for PeerWorldItems<'a> {
    type Item = Result<PeerWorldItem<'a>, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.reader.is_empty() {
            return None;
        }
        let item = self.read();
        if item.is_err() {
            self.reader = ByteReader::new(&[]);
        }
        Some(item)
    }
}

fn get_site(reader: &mut ByteReader<'_>) -> Result<WorldSiteId, DecodeError> {
    reader.u32().map(WorldSiteId)
}

/// Encoder of a datagram. An item that does not fit is left out as a whole.
#[derive(Debug)]
pub(crate) struct PeerWorldDatagramWriter<'a> {
    writer: ByteWriter<'a>,
}

impl<'a> PeerWorldDatagramWriter<'a> {
    pub(crate) fn new(buf: &'a mut [u8]) -> Result<Self, BufferFull> {
        let mut writer = ByteWriter::new(buf);
        writer.u8(FAMILY)?;
        Ok(Self { writer })
    }

    /// Returns the length so far in bytes.
    pub(crate) fn len(&self) -> usize {
        self.writer.len()
    }

    /// Returns whether the datagram has no items yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 1
    }

    pub(crate) fn put(&mut self, item: PeerWorldItem<'_>) -> Result<(), BufferFull> {
        let start = self.writer.len();
        self.write(item).inspect_err(|BufferFull| self.writer.truncate(start))
    }

    fn write(&mut self, item: PeerWorldItem<'_>) -> Result<(), BufferFull> {
        let writer = &mut self.writer;
        match item {
            PeerWorldItem::Update(update) => {
                writer.put(&[UPDATE, update.entity_index])?;
                writer.put(&update.sequence.to_le_bytes())?;
                writer.put(&update.tick.to_le_bytes())?;
                writer.varint(update.state.len() as u32)?;
                writer.put(update.state)
            }
            PeerWorldItem::WorldTime(Some(ahead)) => {
                writer.u8(WORLD_TIME)?;
                writer.put(&ahead.as_nanos().to_le_bytes())
            }
            PeerWorldItem::WorldTime(None) => writer.u8(NO_WORLD_TIME),
            PeerWorldItem::RegionsComplete => writer.u8(REGIONS_COMPLETE),
            PeerWorldItem::OwnRegion(WorldRegion { x, y }) => writer.put(&[OWN_REGION, x, y]),
            PeerWorldItem::Probe(sent) => {
                writer.u8(PROBE)?;
                writer.put(&sent.as_nanos().to_le_bytes())
            }
            PeerWorldItem::Echo(ClockEcho { sent, received, answered }) => {
                writer.u8(ECHO)?;
                [sent, received, answered].iter().try_for_each(|stamp| writer.put(&stamp.as_nanos().to_le_bytes()))
            }
            PeerWorldItem::LinkReport { site, lost, late } => {
                put_site(writer, LINK_REPORT, site)?;
                writer.put(&[lost, late])
            }
            PeerWorldItem::RecordVersion { site, version } => {
                put_site(writer, RECORD_VERSION, site)?;
                writer.varint(version)
            }
            PeerWorldItem::RecordRequest { site } => put_site(writer, RECORD_REQUEST, site),
            PeerWorldItem::Record { site, version, bytes } => {
                put_site(writer, RECORD, site)?;
                writer.varint(version)?;
                writer.varint(bytes.len() as u32)?;
                writer.put(bytes)
            }
            PeerWorldItem::Leave => writer.u8(LEAVE),
        }
    }
}

fn put_site(writer: &mut ByteWriter<'_>, kind: u8, site: WorldSiteId) -> Result<(), BufferFull> {
    writer.u8(kind)?;
    writer.put(&site.0.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn all_kinds() -> Vec<PeerWorldItem<'static>> {
        let at = Instant::from_nanos;
        alloc::vec![
            PeerWorldItem::Update(EntityStateUpdate { entity_index: 3, sequence: 65_535, tick: 258, state: b"here" }),
            PeerWorldItem::WorldTime(Some(TimeDelta::from_nanos(-5))),
            PeerWorldItem::WorldTime(None),
            PeerWorldItem::RegionsComplete,
            PeerWorldItem::OwnRegion(WorldRegion { x: 1, y: 255 }),
            PeerWorldItem::Probe(at(-1)),
            PeerWorldItem::Echo(ClockEcho { sent: at(1), received: at(2), answered: at(i64::MAX) }),
            PeerWorldItem::LinkReport { site: WorldSiteId(9), lost: 255, late: 1 },
            PeerWorldItem::RecordVersion { site: WorldSiteId(u32::MAX), version: 1 << 20 },
            PeerWorldItem::RecordRequest { site: WorldSiteId(0) },
            PeerWorldItem::Record { site: WorldSiteId(1), version: 0, bytes: b"score" },
            PeerWorldItem::Leave,
        ]
    }

    #[test]
    fn every_item_round_trips() {
        let mut buf = [0; 400];
        let mut datagram = PeerWorldDatagramWriter::new(&mut buf).unwrap();
        assert!(datagram.is_empty());
        for item in all_kinds() {
            datagram.put(item).unwrap();
        }
        let len = datagram.len();
        let read: Result<Vec<_>, _> = PeerWorldItems::new(&buf[..len]).unwrap().collect();
        assert_eq!(read.unwrap(), all_kinds());
    }

    #[test]
    fn item_that_does_not_fit_is_not_written() {
        let mut buf = [0; 12];
        let mut datagram = PeerWorldDatagramWriter::new(&mut buf).unwrap();
        datagram.put(PeerWorldItem::WorldTime(None)).unwrap();
        let len = datagram.len();
        assert_eq!(
            datagram.put(PeerWorldItem::Record { site: WorldSiteId(1), version: 1, bytes: &[0; 9] }),
            Err(BufferFull)
        );
        assert_eq!(datagram.len(), len);
        assert_eq!(PeerWorldItems::new(&buf[..len]).unwrap().count(), 1);
    }

    #[test]
    fn truncated_or_invalid_items_are_errors() {
        let mut buf = [0; 400];
        let mut datagram = PeerWorldDatagramWriter::new(&mut buf).unwrap();
        all_kinds().into_iter().for_each(|item| datagram.put(item).unwrap());
        let len = datagram.len();
        for cut in 1..len {
            let items: Vec<_> = PeerWorldItems::new(&buf[..cut]).unwrap().collect();
            assert!(items.iter().rev().skip(1).all(Result::is_ok), "only the last item can be truncated");
        }
        assert_eq!(PeerWorldItems::new(&[0x3f]).unwrap_err(), DecodeError::Version(15));
        assert_eq!(PeerWorldItems::new(&[0x91]).unwrap_err(), DecodeError::Malformed);
        assert_eq!(PeerWorldItems::new(&[]).unwrap_err(), DecodeError::Truncated);
        let too_long = [FAMILY, RECORD, 0, 0, 0, 0, 0, 0xff, 0x7f];
        assert_eq!(PeerWorldItems::new(&too_long).unwrap().next(), Some(Err(DecodeError::Malformed)));
    }
}
