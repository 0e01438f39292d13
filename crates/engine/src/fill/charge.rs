//! The charge of a fill to the budget.

/// The budget charged for a fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FillCharge {
    /// A storable body that is not complete yet.
    Arriving(u64),
    /// Bytes of an unstored body that readers have not read yet.
    Behind(u64),
}

impl FillCharge {
    pub(super) const fn bytes(self) -> u64 {
        match self {
            Self::Arriving(bytes) | Self::Behind(bytes) => bytes,
        }
    }
}
