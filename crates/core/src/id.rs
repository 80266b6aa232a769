//! Identifiers: sites, sets of sites, and transport addresses.

use core::fmt;

/// Maximum number of sites in one session; a [`SiteSet`] has one bit for each.
pub const MAX_SITES: usize = 8;

/// One running replica of the game, numbered from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SiteId(u8);

impl SiteId {
    /// Creates a site from its number. Returns `None` for a number of [`MAX_SITES`] or more.
    pub const fn new(number: u8) -> Option<Self> {
        if (number as usize) < MAX_SITES { Some(Self(number)) } else { None }
    }

    /// Returns the site's number, which is less than [`MAX_SITES`].
    pub const fn number(self) -> u8 {
        self.0
    }

    /// Returns the site's number as an index into arrays of [`MAX_SITES`] elements.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Returns the `count` lowest sites in ascending order, at most [`MAX_SITES`].
    pub fn first(count: usize) -> impl DoubleEndedIterator<Item = Self> + Clone {
        (0..count.min(MAX_SITES) as u8).map(Self)
    }
}

impl fmt::Debug for SiteId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "site {}", self.0)
    }
}

impl fmt::Display for SiteId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A set of sites, stored as one bit per site.
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct SiteSet(u8);

impl SiteSet {
    /// The set that contains no site. This is the default.
    pub const EMPTY: Self = Self(0);

    /// Creates the set of the `count` lowest sites, at most [`MAX_SITES`].
    pub fn first(count: usize) -> Self {
        SiteId::first(count).collect()
    }

    /// Creates a set from a bit mask: bit k stands for site k.
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// Returns the set as a bit mask: bit k stands for site k.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Adds a site; does nothing if it is in the set already.
    pub const fn insert(&mut self, site: SiteId) {
        self.0 |= 1 << site.0;
    }

    /// Removes a site; does nothing if it is not in the set.
    pub const fn remove(&mut self, site: SiteId) {
        self.0 &= !(1 << site.0);
    }

    /// Returns whether the site is in the set.
    pub const fn contains(self, site: SiteId) -> bool {
        self.0 & (1 << site.0) != 0
    }

    /// Returns the set of all sites that are in this set, in `other`, or in both.
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns whether every site of `other` is in this set.
    pub const fn contains_all(self, other: Self) -> bool {
        other.0 & !self.0 == 0
    }

    /// Returns whether no site is in the set.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the sites, lowest first.
    pub fn iter(self) -> impl Iterator<Item = SiteId> {
        SiteId::first(MAX_SITES).filter(move |site| self.contains(*site))
    }
}

impl FromIterator<SiteId> for SiteSet {
    fn from_iter<I: IntoIterator<Item = SiteId>>(sites: I) -> Self {
        let mut set = Self::EMPTY;
        for site in sites {
            set.insert(site);
        }
        set
    }
}

impl fmt::Debug for SiteSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// The source or destination of a datagram: a number that the transport chooses and that has no meaning to the engines.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Addr(pub u64);
