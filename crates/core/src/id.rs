//! Who is who: sites, sets of sites, and the addresses a transport knows them by.

use core::fmt;

/// The most sites that can play in one session.
pub const MAX_SITES: usize = 8;

/// One running replica of the game, numbered from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SiteId(u8);

impl SiteId {
    /// The site with this number, or `None` if a session cannot have so many.
    pub const fn new(number: u8) -> Option<Self> {
        if (number as usize) < MAX_SITES { Some(Self(number)) } else { None }
    }

    /// The site's number.
    pub const fn number(self) -> u8 {
        self.0
    }

    /// The site's number, for arrays with one place per site.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The first `count` sites.
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

/// A set of sites.
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct SiteSet(u8);

impl SiteSet {
    /// No site.
    pub const EMPTY: Self = Self(0);

    /// The first `count` sites.
    pub fn first(count: usize) -> Self {
        SiteId::first(count).collect()
    }

    /// From one bit per site.
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// One bit per site.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Adds a site.
    pub const fn insert(&mut self, site: SiteId) {
        self.0 |= 1 << site.0;
    }

    /// Takes a site out.
    pub const fn remove(&mut self, site: SiteId) {
        self.0 &= !(1 << site.0);
    }

    /// Whether the site is in the set.
    pub const fn contains(self, site: SiteId) -> bool {
        self.0 & (1 << site.0) != 0
    }

    /// The sites of both sets.
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether every site of `other` is in this set.
    pub const fn contains_all(self, other: Self) -> bool {
        other.0 & !self.0 == 0
    }

    /// Whether no site is in the set.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The sites, lowest first.
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

/// Where a datagram came from or goes to: a handle of the transport's own choosing, meaningless to the engines.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Addr(pub u64);
