//! Packets of the desync bisection: sites whose states differ request hashes from each other until they know where the
//! difference began.
//!
//! One site requests, the other site answers, and a request without an answer is repeated. Nothing needs an
//! acknowledgement, and nothing is sent unrequested. Every message names the span or frame that it refers to, so that a
//! late message is recognised.

use super::report::{FrameSpan, MAX_REGION_NAME, StateRegion};
use crate::codec::{BufferFull, ByteReader, ByteWriter, DecodeError};
use crate::frame::Frame;

/// Largest number of hashes in one answer, chosen so that the answer is shorter than
/// [`MAX_DATAGRAM`](crate::codec::MAX_DATAGRAM).
pub const MAX_HASHES: usize = 256;

const HASHES_REQUEST: u8 = 0x20;
const HASHES: u8 = 0x21;
const CANNOT_REPLAY: u8 = 0x22;
const REGIONS_REQUEST: u8 = 0x23;
const REGIONS: u8 = 0x24;
const PAGES_REQUEST: u8 = 0x25;
const PAGES: u8 = 0x26;

/// A packet of the desync bisection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DesyncMessage<'a> {
    /// Request for the hashes of the receiver's states.
    HashesRequest {
        /// Span of frames in which the states began to differ.
        span: FrameSpan,
        /// First frame whose hash is requested.
        from: Frame,
        /// Digest of the sender's state after the span, computed during the game; `None` if the sender has none.
        digest: Option<u32>,
    },
    /// The hashes of the sender's states, frame by frame.
    Hashes {
        /// Span of frames in which the states began to differ.
        span: FrameSpan,
        /// Frame of the first hash.
        from: Frame,
        /// Digest of the sender's state after the span, computed during the game; `None` if the sender has none.
        digest: Option<u32>,
        /// One state hash per frame, from `from` on.
        hashes: HashList<'a>,
    },
    /// The sender cannot replay the span, so the bisection goes on without the sender.
    CannotReplay {
        /// Span of frames in which the states began to differ.
        span: FrameSpan,
        /// Digest of the sender's state after the span, computed during the game; `None` if the sender has none.
        digest: Option<u32>,
    },
    /// Request for the hashes of the regions of the receiver's state.
    RegionsRequest {
        /// The frame after which the state is compared.
        frame: Frame,
        /// Number of the first requested region.
        from: u8,
    },
    /// The regions of the sender's state.
    Regions {
        /// The frame after which the state is compared.
        frame: Frame,
        /// The number of the first region in this packet.
        from: u8,
        /// Number of regions of the sender's state that are compared; 0 if it has none or cannot name them.
        total: u8,
        /// Name, length and hash of each region.
        regions: RegionList<'a>,
    },
    /// Request for the hashes of the 256-byte pages of a region.
    PagesRequest {
        /// The frame after which the state is compared.
        frame: Frame,
        /// The region's number at the receiver.
        region: u8,
        /// Number of the first requested page.
        from: u32,
    },
    /// The hashes of the 256-byte pages of a region.
    Pages {
        /// The frame after which the state is compared.
        frame: Frame,
        /// The region's number at the sender.
        region: u8,
        /// Number of the page of the first hash.
        from: u32,
        /// One hash per page, from `from` on.
        hashes: HashList<'a>,
    },
}

/// Up to [`MAX_HASHES`] hashes of 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct HashList<'a> {
    hashes: &'a [[u8; 4]],
}

impl<'a> HashList<'a> {
    /// Creates a list of at most [`MAX_HASHES`] hashes, each in little-endian order. Excess hashes are dropped.
    pub fn new(hashes: &'a [[u8; 4]]) -> Self {
        Self { hashes: &hashes[..hashes.len().min(MAX_HASHES)] }
    }

    /// Iterates over the hashes in packet order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + use<'a> {
        self.hashes.iter().map(|hash| u32::from_le_bytes(*hash))
    }

    /// Returns the encoded hashes.
    pub(crate) fn as_bytes(&self) -> &'a [[u8; 4]] {
        self.hashes
    }

    /// Decodes the rest of a packet. Fails if it holds more than [`MAX_HASHES`] hashes or a part of one.
    fn read(reader: &mut ByteReader<'a>) -> Result<Self, DecodeError> {
        let (hashes, odd) = reader.rest().as_chunks();
        reader.take(reader.rest().len())?;
        if odd.is_empty() && hashes.len() <= MAX_HASHES { Ok(Self { hashes }) } else { Err(DecodeError::Malformed) }
    }
}

/// Regions of a state, validated when the packet was decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RegionList<'a> {
    bytes: &'a [u8],
}

impl<'a> RegionList<'a> {
    /// Encodes as many regions as fit into `buf`.
    pub fn pack(regions: &[StateRegion], buf: &'a mut [u8]) -> Self {
        let mut len = 0;
        for region in regions {
            let mut writer = ByteWriter::new(&mut buf[len..]);
            if put_region(&mut writer, region).is_err() {
                break;
            }
            len += writer.len();
        }
        Self { bytes: &buf[..len] }
    }

    /// Iterates over the regions in packet order.
    pub fn iter(&self) -> impl Iterator<Item = StateRegion> + use<'a> {
        let mut reader = ByteReader::new(self.bytes);
        core::iter::from_fn(move || (!reader.is_empty()).then(|| get_region(&mut reader).ok()).flatten())
    }

    fn read(reader: &mut ByteReader<'a>) -> Result<Self, DecodeError> {
        let bytes = reader.rest();
        while !reader.is_empty() {
            get_region(reader)?;
        }
        Ok(Self { bytes })
    }
}

fn put_region(writer: &mut ByteWriter<'_>, region: &StateRegion) -> Result<(), BufferFull> {
    let name = region.short_name();
    writer.u8(name.len() as u8)?;
    writer.put(name.as_bytes())?;
    writer.varint(region.len)?;
    writer.put(&region.hash.to_le_bytes())
}

fn get_region(reader: &mut ByteReader<'_>) -> Result<StateRegion, DecodeError> {
    let len = usize::from(reader.u8()?);
    if len > MAX_REGION_NAME {
        return Err(DecodeError::Malformed);
    }
    let name = core::str::from_utf8(reader.take(len)?).map_err(|_| DecodeError::Malformed)?;
    Ok(StateRegion { name: name.into(), len: reader.varint()?, hash: reader.u32()? })
}

impl<'a> DesyncMessage<'a> {
    /// Returns whether a datagram, if valid, is a packet of the desync bisection.
    pub fn is_desync_message(bytes: &[u8]) -> bool {
        bytes.first().is_some_and(|first| first & 0xf0 == 0x20)
    }

    /// Decodes a packet of the desync bisection. Fails if bytes follow the message.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = ByteReader::new(bytes);
        let kind = reader.u8()?;
        let message = match kind {
            HASHES_REQUEST | HASHES | CANNOT_REPLAY => Self::read_span_message(kind, &mut reader)?,
            REGIONS_REQUEST => Self::RegionsRequest { frame: get_frame(&mut reader)?, from: reader.u8()? },
            REGIONS => {
                let (frame, from, total) = (get_frame(&mut reader)?, reader.u8()?, reader.u8()?);
                Self::Regions { frame, from, total, regions: RegionList::read(&mut reader)? }
            }
            PAGES_REQUEST => {
                Self::PagesRequest { frame: get_frame(&mut reader)?, region: reader.u8()?, from: reader.varint()? }
            }
            PAGES => {
                let (frame, region, from) = (get_frame(&mut reader)?, reader.u8()?, reader.varint()?);
                Self::Pages { frame, region, from, hashes: HashList::read(&mut reader)? }
            }
            _ => return Err(DecodeError::Malformed),
        };
        if reader.is_empty() { Ok(message) } else { Err(DecodeError::Malformed) }
    }

    fn read_span_message(kind: u8, reader: &mut ByteReader<'a>) -> Result<Self, DecodeError> {
        let span = FrameSpan::new(get_frame(reader)?, get_frame(reader)?).ok_or(DecodeError::Malformed)?;
        let digest = match reader.u8()? {
            0 => None,
            1 => Some(reader.u32()?),
            _ => return Err(DecodeError::Malformed),
        };
        Ok(match kind {
            CANNOT_REPLAY => Self::CannotReplay { span, digest },
            HASHES_REQUEST => Self::HashesRequest { span, from: get_frame(reader)?, digest },
            _ => Self::Hashes { span, from: get_frame(reader)?, digest, hashes: HashList::read(reader)? },
        })
    }

    /// Encodes a packet of the desync bisection and returns its length in bytes.
    pub fn encode(&self, buf: &mut [u8]) -> Result<usize, BufferFull> {
        let mut writer = ByteWriter::new(buf);
        match self {
            Self::HashesRequest { span, from, digest } => {
                put_span(&mut writer, HASHES_REQUEST, *span, *digest)?;
                put_frame(&mut writer, *from)?;
            }
            Self::Hashes { span, from, digest, hashes } => {
                put_span(&mut writer, HASHES, *span, *digest)?;
                put_frame(&mut writer, *from)?;
                writer.put(hashes.hashes.as_flattened())?;
            }
            Self::CannotReplay { span, digest } => put_span(&mut writer, CANNOT_REPLAY, *span, *digest)?,
            Self::RegionsRequest { frame, from } => {
                writer.u8(REGIONS_REQUEST)?;
                put_frame(&mut writer, *frame)?;
                writer.u8(*from)?;
            }
            Self::Regions { frame, from, total, regions } => {
                writer.u8(REGIONS)?;
                put_frame(&mut writer, *frame)?;
                writer.put(&[*from, *total])?;
                writer.put(regions.bytes)?;
            }
            Self::PagesRequest { frame, region, from } => {
                put_pages(&mut writer, PAGES_REQUEST, *frame, *region, *from)?
            }
            Self::Pages { frame, region, from, hashes } => {
                put_pages(&mut writer, PAGES, *frame, *region, *from)?;
                writer.put(hashes.hashes.as_flattened())?;
            }
        }
        Ok(writer.len())
    }
}

fn put_span(writer: &mut ByteWriter<'_>, kind: u8, span: FrameSpan, digest: Option<u32>) -> Result<(), BufferFull> {
    writer.u8(kind)?;
    put_frame(writer, span.first())?;
    put_frame(writer, span.last())?;
    writer.u8(u8::from(digest.is_some()))?;
    digest.map_or(Ok(()), |digest| writer.put(&digest.to_le_bytes()))
}

fn put_pages(writer: &mut ByteWriter<'_>, kind: u8, frame: Frame, region: u8, from: u32) -> Result<(), BufferFull> {
    writer.u8(kind)?;
    put_frame(writer, frame)?;
    writer.u8(region)?;
    writer.varint(from)
}

fn put_frame(writer: &mut ByteWriter<'_>, frame: Frame) -> Result<(), BufferFull> {
    writer.put(&frame.number().to_le_bytes())
}

fn get_frame(reader: &mut ByteReader<'_>) -> Result<Frame, DecodeError> {
    reader.u32().map(Frame::new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::MAX_DATAGRAM;
    use alloc::vec::Vec;

    fn messages<'a>(hashes: &'a [[u8; 4]], regions: RegionList<'a>) -> Vec<DesyncMessage<'a>> {
        let (frame, from, hashes) = (Frame::new(90), Frame::new(70), HashList::new(hashes));
        let span = FrameSpan::new(Frame::new(60), Frame::new(119)).unwrap();
        [
            DesyncMessage::HashesRequest { span, from, digest: None },
            DesyncMessage::HashesRequest { span, from, digest: Some(7) },
            DesyncMessage::Hashes { span, from, digest: Some(8), hashes },
            DesyncMessage::CannotReplay { span, digest: Some(9) },
            DesyncMessage::RegionsRequest { frame, from: 3 },
            DesyncMessage::Regions { frame, from: 3, total: 64, regions },
            DesyncMessage::PagesRequest { frame, region: 5, from: 512 },
            DesyncMessage::Pages { frame, region: 5, from: 512, hashes },
        ]
        .into()
    }

    #[test]
    fn messages_round_trip_and_fit_into_a_datagram() {
        let hashes = [[1, 2, 3, 4]; 300];
        let named = |number: u8| StateRegion { name: "r".repeat(30), len: 1 << 20, hash: number.into() };
        let all: Vec<StateRegion> = (0..64).map(named).collect();
        let mut packed = [0; MAX_DATAGRAM - 16];
        let regions = RegionList::pack(&all, &mut packed);
        assert!(regions.iter().eq(all[..regions.iter().count()].iter().cloned()) && regions.iter().count() > 20);
        for message in messages(&hashes, regions) {
            let mut buf = [0; MAX_DATAGRAM];
            let len = message.encode(&mut buf).unwrap();
            assert!(DesyncMessage::is_desync_message(&buf));
            assert_eq!(DesyncMessage::decode(&buf[..len]), Ok(message));
        }
    }

    #[test]
    fn arbitrary_bytes_do_not_panic() {
        let hashes = [[1, 2, 3, 4]; 3];
        let mut packed = [0; 99];
        let all = [StateRegion { name: "ram".into(), len: 2_048, hash: 9 }];
        let regions = RegionList::pack(&all, &mut packed);
        for message in messages(&hashes, regions) {
            let mut buf = [0; MAX_DATAGRAM];
            let len = message.encode(&mut buf).unwrap();
            for end in 0..len {
                let list = matches!(
                    message,
                    DesyncMessage::Hashes { .. } | DesyncMessage::Regions { .. } | DesyncMessage::Pages { .. }
                );
                assert!(list || DesyncMessage::decode(&buf[..end]).is_err());
            }
            for at in 0..len {
                for byte in 0..=255 {
                    let before = core::mem::replace(&mut buf[at], byte);
                    if let Ok(decoded) = DesyncMessage::decode(&buf[..len]) {
                        let mut encoded = [0; MAX_DATAGRAM];
                        assert_eq!(decoded.encode(&mut encoded), Ok(len), "a message has exactly one encoding");
                        assert_eq!(encoded[..len], buf[..len]);
                    }
                    buf[at] = before;
                }
            }
        }
        assert_eq!(DesyncMessage::decode(&[]), Err(DecodeError::Truncated));
        assert_eq!(DesyncMessage::decode(&[0x2f]), Err(DecodeError::Malformed));
    }
}
